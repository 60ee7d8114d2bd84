import type { Attachment, OracleClient } from '@sibyl/client';
import { useOracle } from '@sibyl/client/react';
import { useEffect, useRef, useState } from 'react';
import { formatBytes } from '../i18n/format.js';
import { formatNumber, t } from '../i18n/i18n.js';
import { usePage } from '../page/page-context.js';
import { Icon, IconButton } from '../ui/icon.js';
import { openFile } from './save-file.js';

/** Chooses files to upload. */
export function AttachButton({ onFiles }: { readonly onFiles: (files: readonly File[]) => void }) {
  const input = useRef<HTMLInputElement>(null);
  return (
    <>
      <input
        ref={input}
        type="file"
        multiple
        hidden
        aria-label={t('chat.files')}
        onChange={({ target }) => {
          onFiles([...(target.files ?? [])]);
          // The same file can be chosen again after it was removed.
          target.value = '';
        }}
      />
      <IconButton icon="clip" label={t('chat.attach')} onClick={() => input.current?.click()} />
    </>
  );
}

/** A file that a message refers to; stored ones have a name. */
type AttachedFile = { readonly [K in keyof Attachment]?: Attachment[K] | undefined };

interface DraftFilesProps {
  readonly files: readonly Attachment[];
  readonly uploads: Uploads;
  readonly onRemove: (file: Attachment) => void;
}

/** The files of the message that the user is writing, and those on their way. */
export function DraftFiles({ files, uploads, onRemove }: DraftFilesProps) {
  if (files.length === 0 && uploads.uploads.length === 0) return null;
  return (
    <ul className="files" aria-label={t('chat.attachments')}>
      {files.map((file) => (
        <li key={getKey(file)} className="att">
          <Thumb file={file} />
          <div>
            <div className="clip">
              <bdi>{file.filename}</bdi>
            </div>
            {file.size !== undefined && <div className="hint num">{formatBytes(file.size)}</div>}
          </div>
          <IconButton
            icon="x"
            label={t('chat.files.remove', { name: file.filename })}
            onClick={() => onRemove(file)}
          />
        </li>
      ))}
      {uploads.uploads.map((upload) => (
        <UploadRow key={upload.id} upload={upload} onRemove={() => uploads.remove(upload.id)} />
      ))}
    </ul>
  );
}

interface UploadRowProps {
  readonly upload: Upload;
  readonly onRemove: () => void;
}

function UploadRow({ upload: { file, progress, error }, onRemove }: UploadRowProps) {
  const percent = Math.round(progress * 100);
  return (
    <li className={error ? 'att is-fault' : 'att'}>
      <span className={error ? 'thumb is-fault' : 'thumb'}>
        <Icon name={error ? 'alert' : 'file'} />
      </span>
      <div>
        <div className="clip">
          <bdi>{file.name}</bdi>
        </div>
        {error ? (
          <div className="small is-fault" role="alert">
            {error}
          </div>
        ) : (
          <>
            <div className="hint num">
              {t('chat.files.uploading', { percent: formatNumber(percent) })}
            </div>
            <progress className="bar" max={100} value={percent} aria-label={file.name} />
          </>
        )}
      </div>
      <IconButton
        icon="x"
        label={t(error ? 'chat.files.remove' : 'chat.files.cancel', { name: file.name })}
        onClick={onRemove}
      />
    </li>
  );
}

const getKey = ({ fileId, mxcUri, eventId }: AttachedFile) => fileId ?? mxcUri ?? eventId;

const isImage = ({ mimetype = '' }: AttachedFile) => /^image\/(png|jpeg|gif|webp)$/.test(mimetype);

/** The files of a message: images as images, others by name. */
export function AttachmentList({ files }: { readonly files: readonly AttachedFile[] }) {
  const client = useOracle();
  if (files.length === 0) return null;
  return (
    <ul className="sources" aria-label={t('chat.attachments')}>
      {files.map((file) => (
        <li key={getKey(file)}>
          <button
            type="button"
            className="source"
            disabled={!file.fileId}
            title={t('chat.file.save')}
            onClick={() => file.fileId && void openFile(client, file.fileId)}
          >
            {isImage(file) && file.fileId ? <Picture file={file} /> : <Icon name="file" />}
            <bdi>{file.filename}</bdi>
            {file.size !== undefined && <span className="quiet">{formatBytes(file.size)}</span>}
          </button>
        </li>
      ))}
    </ul>
  );
}

function Thumb({ file }: { readonly file: AttachedFile }) {
  return (
    <span className="thumb">
      {isImage(file) && file.fileId ? <Picture file={file} /> : <Icon name="file" />}
    </span>
  );
}

/** Larger images are shown by name only. */
const MAX_PICTURE_BYTES = 20_000_000;

/** An image of the user, which only a signed request can read. */
function Picture({
  file: { fileId = '', filename = '', size = 0 },
}: {
  readonly file: AttachedFile;
}) {
  const { files } = useOracle();
  const [url, setUrl] = useState<string>();
  useEffect(() => {
    if (size > MAX_PICTURE_BYTES) return;
    const stop = new AbortController();
    let created: string | undefined;
    const load = async () => {
      const response = await files.download(fileId, { signal: stop.signal });
      created = URL.createObjectURL(await response.blob());
      if (stop.signal.aborted) URL.revokeObjectURL(created);
      else setUrl(created);
    };
    // The name says enough if the image is gone.
    load().catch(() => undefined);
    return () => {
      stop.abort();
      if (created) URL.revokeObjectURL(created);
    };
  }, [files, fileId, size]);
  return url ? <img className="picture" src={url} alt={filename} /> : <Icon name="file" />;
}

/** The most files of one message. */
const MAX_FILES = 10;

/** A file on its way to the oracle. */
export interface Upload {
  readonly id: string;
  readonly file: File;
  /** From 0 to 1. */
  readonly progress: number;
  readonly error?: string;
}

export interface Uploads {
  readonly uploads: readonly Upload[];
  readonly isUploading: boolean;
  add(files: readonly File[]): void;
  /** Cancels an upload, or removes one that failed. */
  remove(id: string): void;
}

/** Uploads files; `onDone` receives each one when the oracle has it. */
export function useUploads(attached: number, onDone: (file: Attachment) => void): Uploads {
  const client = useOracle();
  const { settings } = usePage();
  const [uploads, setUploads] = useState<readonly Upload[]>([]);
  const cancels = useRef(new Map<string, AbortController>());
  const done = useRef(onDone);
  useEffect(() => {
    done.current = onDone;
  });
  useEffect(() => {
    const { current: running } = cancels;
    // The draft belongs to the next composer then.
    return () => {
      for (const cancel of running.values()) cancel.abort();
    };
  }, []);
  const change = (id: string, changed: Partial<Upload>) =>
    setUploads((all) => all.map((each) => (each.id === id ? { ...each, ...changed } : each)));
  const drop = (id: string) => setUploads((all) => all.filter((each) => each.id !== id));

  const upload = async ({ id, file }: Upload) => {
    const cancel = new AbortController();
    const { signal } = cancel;
    cancels.current.set(id, cancel);
    try {
      const onProgress = (progress: number) => change(id, { progress });
      const homeServer = settings.matrixBaseUrl;
      const stored =
        (await uploadToMatrix(client, file, { signal, homeServer })) ??
        (await uploadTo(client, file, { signal, onProgress }));
      if (signal.aborted) return;
      done.current(stored);
      drop(id);
    } catch (error) {
      const text = (await isReadable(file)) ? (error as Error).message : t('chat.files.unreadable');
      if (!signal.aborted) change(id, { error: text });
    } finally {
      cancels.current.delete(id);
    }
  };
  const add = (files: readonly File[]) => {
    const room = MAX_FILES - attached - uploads.length;
    const added = files.map((file, index): Upload => {
      const base = { id: crypto.randomUUID(), file, progress: 0 };
      return index < room
        ? base
        : { ...base, error: t('chat.files.tooMany', { count: MAX_FILES }) };
    });
    setUploads((all) => [...all, ...added]);
    for (const each of added) if (!each.error) void upload(each);
  };
  const remove = (id: string) => {
    cancels.current.get(id)?.abort();
    drop(id);
  };
  const isUploading = uploads.some(({ error }) => !error);
  return { uploads, isUploading, add, remove };
}

/** Folders are not, nor files that were removed or changed since; browsers fail then as without a network. */
const isReadable = (file: File): Promise<boolean> =>
  file
    .slice(0, 1)
    .arrayBuffer()
    .then(
      () => true,
      () => false,
    );

/** Undefined without a homeserver on which the user is signed in. */
async function uploadToMatrix(
  client: OracleClient,
  file: File,
  options: { readonly signal: AbortSignal; readonly homeServer: string | undefined },
): Promise<Attachment | undefined> {
  const { signal, homeServer } = options;
  if (!homeServer) return undefined;
  const { readMatrixSession, uploadFile } = await import('../panels/matrix-panel.js');
  const matrix = readMatrixSession(homeServer, client.did);
  return matrix && uploadFile(matrix, file, signal);
}

async function uploadTo(
  client: OracleClient,
  file: File,
  options: { readonly signal: AbortSignal; readonly onProgress: (share: number) => void },
): Promise<Attachment> {
  const { fileId, name, mediaType, size } = await client.files.upload(file, {
    ...options,
    name: file.name,
  });
  return { fileId, filename: name, mimetype: mediaType, size };
}
