import { ByteBudget, type Embeddings, PluginManifest } from '@sibyl/plugin-kit';
import type { Logger } from 'pino';
import type { HostLiveness } from '../bus/host-bus.js';
import type { Config } from '../config/config.js';
import type { Store } from '../store/store.js';
import { FileService } from './file-service.js';
import { createFilesPlugin } from './files-plugin.js';
import { PassageEmbedder } from './passage-embedder.js';
import { PassageSearch } from './passage-search.js';
import { S3Chunks } from './s3-chunks.js';
import { TextIndexer } from './text-indexer.js';

/** Memory of the images that running turns show to models; one call shows at most 64 MB. */
const IMAGE_LIMITS = { maxBytes: 256 * 1024 ** 2, maxBytesPerKey: 100 * 1024 ** 2 };

interface FilesDeps {
  readonly settings: Config['files'];
  readonly store: Store;
  readonly logger: Logger;
  readonly liveness: HostLiveness;
  readonly embeddings: Embeddings | undefined;
}

/** Builds the files of users, and what they contribute to turns as a plugin; it stops reading them when the host closes. */
export function openFiles({ settings, store, logger, liveness, embeddings }: FilesDeps) {
  const { files, fileTexts: texts, passageVectors: vectors, fileChunks, disk } = store;
  const { url, ...limits } = settings;
  const service: FileService = new FileService({
    files,
    texts,
    storages: url ? [new S3Chunks(url), fileChunks] : [fileChunks],
    limits,
    disk,
    liveness,
    logger,
    onUnread: () => indexer.wake(),
  });
  // The space of its uploads is free at once.
  liveness.onHostLost(() => {
    service.sweep().catch((err) => logger.warn({ err }, 'uploads of a dead host are not removed'));
  });
  const readBytes: FileService['read'] = (file, range) => service.read(file, range);
  const embedder = embeddings && new PassageEmbedder({ vectors, embeddings, logger });
  const onRead = () => embedder?.wake();
  const indexer = new TextIndexer({ ...limits, texts, readBytes, logger, onRead });
  const search = new PassageSearch({ texts, vectors, embeddings, logger });
  const images = new ByteBudget(IMAGE_LIMITS);
  const plugin = createFilesPlugin({ files, texts, service, images, search, indexer, embedder });
  const manifest = PluginManifest.parse(plugin.manifest);
  return { service, plugin: { plugin, name: plugin.name, manifest, config: {} } };
}
