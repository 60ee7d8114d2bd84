import type { Attachment } from '@sibyl/client';
import { useRef, useState } from 'react';
import { IconButton } from '../page/icon-button.js';
import { usePage } from '../page/page-context.js';
import { readMatrixSession, uploadFile } from '../panels/matrix-panel.js';

const MAX_FILES = 10;

/** Uploads files to the user's homeserver; hidden without a Matrix session. */
export function AttachButton({ onAttach }: { readonly onAttach: (file: Attachment) => void }) {
  const { settings } = usePage();
  const input = useRef<HTMLInputElement>(null);
  const [error, setError] = useState<string>();
  const matrix = readMatrixSession(settings.matrixBaseUrl);
  if (!matrix) return null;
  const upload = async (files: readonly File[]) => {
    setError(undefined);
    for (const file of files.slice(0, MAX_FILES)) {
      try {
        onAttach(await uploadFile(matrix, file));
      } catch (cause) {
        setError(`${file.name}: ${(cause as Error).message}`);
      }
    }
  };
  return (
    <>
      <input
        ref={input}
        type="file"
        multiple
        hidden
        aria-label="Files"
        onChange={({ target }) => void upload([...(target.files ?? [])])}
      />
      <IconButton icon="clip" label="Attach files" onClick={() => input.current?.click()} />
      {error && (
        <span className="error" role="alert">
          {error}
        </span>
      )}
    </>
  );
}

interface AttachmentListProps {
  readonly files: readonly Attachment[];
  readonly onRemove?: (file: Attachment) => void;
}

export function AttachmentList({ files, onRemove }: AttachmentListProps) {
  if (files.length === 0) return null;
  return (
    <ul className="attachments" aria-label="Attachments">
      {files.map((file) => (
        <li key={file.mxcUri ?? file.eventId}>
          {file.filename}
          {onRemove && (
            <IconButton
              icon="close"
              label={`Remove ${file.filename}`}
              onClick={() => onRemove(file)}
            />
          )}
        </li>
      ))}
    </ul>
  );
}
