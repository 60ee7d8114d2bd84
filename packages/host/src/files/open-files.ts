import type { Embeddings } from '@sibyl/plugin-kit';
import { PluginManifest } from '@sibyl/plugin-kit/host';
import { ByteBudget } from '@sibyl/server-kit';
import type { Logger } from 'pino';
import type { HostLiveness } from '../bus/host-bus.js';
import type { Config } from '../config/config.js';
import type { Store } from '../store/store.js';
import { FileService } from './file-service.js';
import { createFilesPlugin } from './files-plugin.js';
import { PassageEmbedder, PassageSearch } from './passage-embedder.js';
import { S3Chunks } from './s3-chunks.js';
import { TextIndexer } from './text-indexer.js';
import { UploadLimits } from './upload-limits.js';

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
  const { url, daily, ...limits } = settings;
  const uploads = new UploadLimits(daily);
  const service: FileService = new FileService({
    files,
    texts,
    storages: url ? [new S3Chunks(url), fileChunks] : [fileChunks],
    limits,
    uploads,
    disk,
    liveness,
    logger,
    onUnread: () => {
      indexer.wake();
      embedder?.wake();
    },
  });
  // The space of its uploads is free at once, and other hosts read its files.
  liveness.onHostLost(() => {
    service.sweep().catch((err) => logger.warn({ err }, 'files of a dead host are not released'));
  });
  const readBytes: FileService['read'] = (file, range) => service.read(file, range);
  const embedder = embeddings && new PassageEmbedder({ vectors, embeddings, logger });
  const onRead = () => embedder?.wake();
  const indexer = new TextIndexer({ ...limits, texts, readBytes, disk, logger, onRead });
  const search = new PassageSearch({ texts, vectors, embeddings, logger });
  const images = new ByteBudget(IMAGE_LIMITS);
  const plugin = createFilesPlugin({ files, texts, service, images, search, indexer, embedder });
  const manifest = PluginManifest.parse(plugin.manifest);
  return { service, uploads, plugin: { plugin, name: plugin.name, manifest, config: {} } };
}
