import type { Attachment, MessageToSend, OracleClientError } from '@sibyl/client';
import { type KeyboardEvent, useEffect, useRef, useState } from 'react';
import { Icon, IconButton } from '../page/icon-button.js';
import { AttachButton, AttachmentList } from './attachments.js';
import { readChosenModel } from './chat-header.js';

interface ComposerProps {
  readonly waiting?: number;
  readonly isBusy?: boolean;
  readonly error?: OracleClientError | undefined;
  /** Rejects if the message could not be sent; the caller shows the error. */
  readonly onSend: (message: MessageToSend) => Promise<void>;
  readonly onStop?: () => Promise<unknown>;
}

/** The message input. Enter sends, Shift+Enter inserts a line break, Escape stops the answer. */
export function Composer({ waiting = 0, isBusy = false, error, onSend, onStop }: ComposerProps) {
  const [text, setText] = useState('');
  const [files, setFiles] = useState<readonly Attachment[]>([]);
  const field = useRef<HTMLTextAreaElement>(null);
  useEffect(() => field.current?.focus(), []);

  const send = () => {
    if (!text.trim()) return;
    setText('');
    setFiles([]);
    onSend(buildMessage(text.trim(), files)).catch(() => {
      setText((current) => current || text);
      setFiles((current) => (current.length > 0 ? current : files));
    });
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === 'Escape' && isBusy) void onStop?.();
    if (event.key !== 'Enter' || event.shiftKey || event.nativeEvent.isComposing) return;
    event.preventDefault();
    send();
  };

  return (
    <form className="composer" aria-label="Message" action={send}>
      <Notices error={error} waiting={waiting} />
      <AttachmentList
        files={files}
        onRemove={(file) => setFiles(files.filter((each) => each !== file))}
      />
      <div className="row">
        <AttachButton onAttach={(file) => setFiles((before) => [...before, file])} />
        <textarea
          ref={field}
          rows={1}
          value={text}
          placeholder="Write a message"
          aria-label="Your message"
          maxLength={200_000}
          onChange={({ target }) => setText(target.value)}
          onKeyDown={onKeyDown}
        />
        {isBusy && (
          <IconButton className="stop" icon="stop" label="Stop" onClick={() => void onStop?.()} />
        )}
        <button
          type="submit"
          className="send"
          disabled={!text.trim()}
          aria-label="Send"
          title="Send"
        >
          <Icon name="send" />
        </button>
      </div>
    </form>
  );
}

function buildMessage(message: string, files: readonly Attachment[]): MessageToSend {
  const model = readChosenModel();
  return {
    message,
    ...(model && { model }),
    ...(files.length > 0 && { attachments: [...files] }),
  };
}

function Notices({ error, waiting }: Required<Pick<ComposerProps, 'error' | 'waiting'>>) {
  return (
    <>
      {error && (
        <p className="error" role="alert">
          {error.message}
        </p>
      )}
      {waiting > 0 && (
        <p className="quiet" role="status">
          {waiting === 1 ? '1 message is queued' : `${waiting} messages are queued`}
        </p>
      )}
    </>
  );
}
