import type { Attachment } from '@sibyl/client';
import { useOracle } from '@sibyl/client/react';
import { useEffect, useRef, useState } from 'react';
import { formatBytes } from '../i18n/format.js';
import { formatNumber, t } from '../i18n/i18n.js';
import { Icon, IconButton } from '../ui/icon.js';
import { openFile } from './save-file.js';
import type { Upload, Uploads } from './uploads.js';

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
  const hasFailed = uploads.uploads.some(({ error }) => error);
  return (
    <>
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
          <UploadRow
            key={upload.id}
            upload={upload}
            onRetry={() => uploads.retry(upload)}
            onRemove={() => uploads.remove(upload.id)}
          />
        ))}
      </ul>
      {hasFailed && <p className="small files-hint">{t('chat.files.notAttached')}</p>}
    </>
  );
}

interface UploadRowProps {
  readonly upload: Upload;
  readonly onRetry: () => void;
  readonly onRemove: () => void;
}

function UploadRow({ upload, onRetry, onRemove }: UploadRowProps) {
  const { file, progress, error, mayPass } = upload;
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
            {error}{' '}
            {mayPass && (
              <button type="button" className="link" onClick={onRetry}>
                {t('chat.retry')}
              </button>
            )}
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
