import { definePlugin, sharedKey } from '@sibyl/plugin-kit';
import { SOURCES_STATE } from '../store/plugin-stores.js';
import { createAttachmentsMiddleware } from './attached-files.js';
import { createFileTools, type FileToolsDeps } from './file-tools.js';
import type { PassageEmbedder } from './passage-embedder.js';
import { createCitationMiddleware, Sources } from './sources.js';
import type { TextIndexer } from './text-indexer.js';

interface FilesPluginDeps extends FileToolsDeps {
  readonly indexer: TextIndexer;
  readonly embedder: PassageEmbedder | undefined;
}

const SOURCES = sharedKey<Sources>('citedSources');

/** What files contribute to turns: tools that search and read them, the files of a message, and citations. */
export const createFilesPlugin = (deps: FilesPluginDeps) =>
  definePlugin({
    name: SOURCES_STATE.plugin,
    version: '0.1.0',
    manifest: {
      title: 'Files',
      summary: "Searches and reads the user's files.",
      whenToUse: ['a question is about a file of the user'],
      category: 'core',
      visibility: 'silent',
    },
    getSharedState: () => SOURCES.sharePerTurn((turn) => new Sources(turn.sessionState)),
    // Not `getTools`: without files, their schemas would only cost tokens.
    getRequestTools: async (turn) => {
      if (!(await deps.files.hasAny(turn.user.did))) return [];
      const sources = turn.shared.require(SOURCES);
      const tools = createFileTools(deps, { sources, signal: turn.signal });
      return tools.map((tool) => ({ ...tool, visibility: 'always' as const }));
    },
    getMiddlewares: () => [
      createAttachmentsMiddleware(deps),
      createCitationMiddleware((turn) => turn.shared.require(SOURCES)),
    ],
    close: async () => {
      await deps.indexer.close();
      await deps.embedder?.close();
    },
  });
