import type { BrowserSigner, OracleCard } from '@sibyl/client';
import { createContext, use } from 'react';
import type { PageSettings } from './oracle-address.js';

/** What every part of the page may need to know. */
export interface PageFacts {
  readonly signer: BrowserSigner;
  readonly card: OracleCard;
  readonly settings: PageSettings;
}

export const PageContext = createContext<PageFacts | undefined>(undefined);

export function usePage(): PageFacts {
  const facts = use(PageContext);
  if (!facts) throw new Error('usePage outside of the page');
  return facts;
}
