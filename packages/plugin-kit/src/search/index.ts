// For plugins that find texts, by their words or their meaning.
export { compareVectors, mergeRankings, toVector, type Vector } from './embeddings.js';
export {
  isUnspaced,
  MAX_INDEXED_TEXT,
  readQueryTerms,
  readTerms,
  type Term,
} from './search-terms.js';
