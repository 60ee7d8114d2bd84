import type { Attachment } from '@sibyl/client';
import {
  type ClipboardEvent,
  type KeyboardEvent,
  type ReactNode,
  useEffect,
  useRef,
  useState,
} from 'react';
import { t } from '../i18n/i18n.js';
import { Icon } from '../ui/icon.js';
import { AttachButton, DraftFiles } from './attachments.js';
import type { DraftState } from './drafts.js';
import { ModelChoice, readChosenModel } from './model-choice.js';
import type { OutgoingMessage } from './outbox.js';
import { useUploads } from './use-uploads.js';

interface ComposerProps {
  readonly draft: DraftState;
  readonly isBusy?: boolean;
  readonly onSend: (message: OutgoingMessage) => void;
  readonly onStop?: () => Promise<unknown>;
  readonly onEditLast?: () => void;
  /** Shown above the box. */
  readonly children?: ReactNode;
}

/** The message input. Enter sends, Shift+Enter inserts a line break, Escape stops the answer. */
export function Composer(props: ComposerProps) {
  const { draft: state, isBusy = false, onSend, onStop, onEditLast, children } = props;
  const { draft, change } = state;
  const { text, files, edit } = draft;
  const field = useRef<HTMLTextAreaElement>(null);
  // Also when the user starts to change a message.
  useEffect(() => field.current?.focus(), [edit]);
  const uploads = useUploads(files.length, (file) =>
    change({ files: [...state.latest().files, file] }),
  );
  const drop = useDrop(uploads.add);
  const canSend = text.trim() !== '' && !uploads.isUploading;
  const cancelEdit = () => change({ text: edit?.previous ?? '', files: [], edit: undefined });
  const send = () => {
    if (!canSend) return;
    cancelEdit();
    onSend({ ...buildMessage(text.trim(), files), ...(edit && { parentId: edit.parentId }) });
  };
  const pasteFiles = (event: ClipboardEvent) => {
    const pasted = [...event.clipboardData.files];
    if (pasted.length === 0) return;
    event.preventDefault();
    uploads.add(pasted);
  };
  const stop = () => {
    if (edit) cancelEdit();
    else if (isBusy) void onStop?.();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.nativeEvent.isComposing) return;
    if (event.key === 'Escape') stop();
    if (event.key === 'ArrowUp' && !text) onEditLast?.();
    if (event.key !== 'Enter' || event.shiftKey) return;
    event.preventDefault();
    send();
  };
  return (
    <div className="dock">
      <div className="dock-in">
        {children}
        <form
          className="composer"
          aria-label={t('chat.composer')}
          action={send}
          onPaste={pasteFiles}
        >
          {edit && <EditLine onCancel={cancelEdit} />}
          <DraftFiles
            files={files}
            uploads={uploads}
            onRemove={(file) => change({ files: files.filter((each) => each !== file) })}
          />
          <textarea
            ref={field}
            rows={1}
            dir="auto"
            value={text}
            placeholder={t(isBusy ? 'chat.composer.next' : 'chat.composer.placeholder')}
            aria-label={t('chat.composer.label')}
            maxLength={200_000}
            onChange={({ target }) => change({ text: target.value })}
            onKeyDown={onKeyDown}
          />
          <div className="composer-bar">
            <AttachButton onFiles={uploads.add} />
            <span className="push" />
            <ModelChoice />
            {isBusy && !canSend ? (
              <button
                type="button"
                className="send is-stop"
                aria-label={t('chat.stop')}
                title={t('chat.stop')}
                onClick={() => void onStop?.()}
              >
                <Icon name="stop" />
              </button>
            ) : (
              <button
                type="submit"
                className="send"
                disabled={!canSend}
                aria-label={t('chat.send')}
                title={t('chat.send')}
              >
                <Icon name="send" />
              </button>
            )}
          </div>
          {drop && (
            <div className="drop">
              <Icon name="file" />
              <span>{t('chat.files.drop')}</span>
            </div>
          )}
        </form>
        <p className="under">{t('chat.canBeWrong')}</p>
      </div>
    </div>
  );
}

function EditLine({ onCancel }: { readonly onCancel: () => void }) {
  return (
    <div className="line edit-line small">
      <Icon name="edit" />
      <span className="grow">{t('chat.editing')}</span>
      <button type="button" className="btn btn-quiet btn-s" onClick={onCancel}>
        {t('chat.cancel')}
      </button>
    </div>
  );
}

function buildMessage(message: string, files: readonly Attachment[]): OutgoingMessage {
  const model = readChosenModel();
  return {
    message,
    ...(model && { model }),
    ...(files.length > 0 && { attachments: [...files] }),
  };
}

/** Accepts files that are dropped anywhere on the page; returns whether some are over it. */
function useDrop(onFiles: (files: readonly File[]) => void): boolean {
  const [isOver, setOver] = useState(false);
  const latest = useRef(onFiles);
  useEffect(() => {
    latest.current = onFiles;
  });
  useEffect(() => {
    const hasFiles = ({ dataTransfer }: DragEvent) => dataTransfer?.types.includes('Files');
    const over = (event: DragEvent) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      setOver(true);
    };
    const leave = ({ relatedTarget }: DragEvent) => relatedTarget === null && setOver(false);
    const drop = (event: DragEvent) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      setOver(false);
      latest.current([...(event.dataTransfer?.files ?? [])]);
    };
    document.addEventListener('dragover', over);
    document.addEventListener('dragleave', leave);
    document.addEventListener('drop', drop);
    return () => {
      document.removeEventListener('dragover', over);
      document.removeEventListener('dragleave', leave);
      document.removeEventListener('drop', drop);
    };
  }, []);
  return isOver;
}
