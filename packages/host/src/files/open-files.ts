import { PluginManifest } from '@sibyl/plugin-kit';
import type { Logger } from 'pino';
import type { Config } from '../config/config.js';
import type { Store } from '../store/store.js';
import { FileService } from './file-service.js';
import { createFilesPlugin } from './files-plugin.js';
import { S3Chunks } from './s3-chunks.js';
import { TextIndexer } from './text-indexer.js';

interface FilesDeps {
  readonly settings: Config['files'];
  readonly store: Store;
  readonly logger: Logger;
}

/** Builds the files of users, and what they contribute to turns as a plugin; it stops reading them when the host closes. */
export function openFiles({ settings, store, logger }: FilesDeps) {
  const { files, fileTexts: texts, fileChunks, disk } = store;
  const { url, ...limits } = settings;
  const service: FileService = new FileService({
    files,
    texts,
    storages: url ? [new S3Chunks(url), fileChunks] : [fileChunks],
    limits,
    disk,
    logger,
    onUnread: () => indexer.wake(),
  });
  const readBytes: FileService['read'] = (file, range) => service.read(file, range);
  const indexer = new TextIndexer({ texts, readBytes, logger });
  const plugin = createFilesPlugin({ files, texts, service, indexer });
  const manifest = PluginManifest.parse(plugin.manifest);
  return { service, plugin: { plugin, name: plugin.name, manifest, config: {} } };
}
