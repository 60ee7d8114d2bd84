import type { Attachment } from '@sibyl/client';
import { useRef, useState } from 'react';
import { IconButton } from '../page/icon-button.js';
import { usePage } from '../page/page-context.js';
import { readMatrixSession, uploadFile } from '../panels/matrix-panel.js';

const MAX_FILES = 10;

/** Uploads files to the user's homeserver; shown to those who are signed in there. */
export function AttachButton({ onAttach }: { readonly onAttach: (file: Attachment) => void }) {
  const { settings } = usePage();
  const input = useRef<HTMLInputElement>(null);
  const [fault, setFault] = useState<string>();
  const matrix = readMatrixSession(settings.matrixBaseUrl);
  if (!matrix) return null;
  const upload = async (files: readonly File[]) => {
    setFault(undefined);
    for (const file of files.slice(0, MAX_FILES)) {
      try {
        onAttach(await uploadFile(matrix, file));
      } catch (error) {
        setFault(`${file.name}: ${(error as Error).message}`);
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
      {fault && (
        <span className="fault" role="alert">
          {fault}
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
