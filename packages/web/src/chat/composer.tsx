import type { ModelList } from '@sibyl/client';
import { useOracle } from '@sibyl/client/react';
import {
  type ClipboardEvent,
  type KeyboardEvent,
  type ReactNode,
  type RefObject,
  useEffect,
  useLayoutEffect,
  useRef,
  useState,
} from 'react';
import { t } from '../i18n/i18n.js';
import { isComposing } from '../page/commands.js';
import { readText, storeText, useStored } from '../page/stored-value.js';
import { Icon } from '../ui/icon.js';
import { Menu } from '../ui/menu.js';
import { AttachButton, DraftFiles } from './attachments.js';
import { type DraftState, endEdit } from './drafts.js';
import type { OutgoingMessage } from './outbox.js';
import { useUploads } from './uploads.js';

type DraftFile = DraftState['draft']['files'][number];

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
  const field = useHeight(text);
  // Also when the user starts to change a message.
  useEffect(() => focusEnd(field.current), [edit]);
  const addFile = (file: DraftFile) => change({ files: [...state.latest().files, file] });
  const uploads = useUploads(files.length, addFile);
  const isOver = useDrop(uploads.add);
  const canSend = text.trim() !== '' && uploads.uploads.length === 0;
  const cancelEdit = () => change(endEdit(draft));
  const send = () => {
    if (!canSend) return;
    cancelEdit();
    onSend(buildMessage(draft));
    field.current?.focus();
  };
  const stop = () => {
    if (edit) cancelEdit();
    else if (isBusy) void onStop?.();
  };
  const removeFile = (file: DraftFile) => change({ files: files.filter((each) => each !== file) });
  const editLast = text ? undefined : onEditLast;
  return (
    <div className="dock">
      <div className="dock-in">
        {children}
        <form
          className="composer"
          aria-label={t('chat.composer')}
          action={send}
          onPaste={(event) => pasteFiles(event, text, uploads.add)}
        >
          {edit && <EditLine onCancel={cancelEdit} />}
          <DraftFiles files={files} uploads={uploads} onRemove={removeFile} />
          <textarea
            ref={field}
            rows={1}
            dir="auto"
            value={text}
            placeholder={t(isBusy ? 'chat.composer.next' : 'chat.composer.placeholder')}
            aria-label={t('chat.composer.label')}
            maxLength={MAX_TEXT}
            onChange={({ target }) => change({ text: target.value })}
            onKeyDown={(event) => handleKey(event, { send, stop, editLast })}
          />
          <div className="composer-bar">
            <AttachButton onFiles={uploads.add} />
            <span className="push" />
            <ModelChoice />
            {isBusy && !canSend ? <StopButton onStop={onStop} /> : <SendButton isOff={!canSend} />}
          </div>
          {isOver && <DropHint />}
        </form>
        <p className="under">{t('chat.canBeWrong')}</p>
      </div>
    </div>
  );
}

/** The box, as high as its text also in browsers that do not do it by `field-sizing`. */
function useHeight(text: string): RefObject<HTMLTextAreaElement | null> {
  const field = useRef<HTMLTextAreaElement>(null);
  useLayoutEffect(() => {
    if (CSS.supports('field-sizing', 'content')) return;
    const fit = () => {
      const { current: box } = field;
      if (!box) return;
      box.style.height = 'auto';
      box.style.height = `${box.scrollHeight}px`;
    };
    fit();
    // Lines may be wrapped elsewhere then.
    window.addEventListener('resize', fit);
    return () => window.removeEventListener('resize', fit);
  }, [text]);
  return field;
}

/** Browsers put the cursor before a draft that is there again. */
function focusEnd(box: HTMLTextAreaElement | null): void {
  box?.focus();
  box?.setSelectionRange(box.value.length, box.value.length);
}

interface KeyActions {
  readonly send: () => void;
  readonly stop: () => void;
  readonly editLast: (() => void) | undefined;
}

function handleKey(event: KeyboardEvent, { send, stop, editLast }: KeyActions): void {
  if (isComposing(event)) return;
  if (event.key === 'Escape') stop();
  if (event.key === 'ArrowUp') editLast?.();
  if (event.key !== 'Enter' || event.shiftKey) return;
  event.preventDefault();
  send();
}

/** The server's limit of a message. */
const MAX_TEXT = 200_000;

/** Attaches pasted files, and a text that is too long for the box, which would lose its end. */
function pasteFiles(
  event: ClipboardEvent,
  typed: string,
  add: (files: readonly File[]) => void,
): void {
  const { clipboardData: data } = event;
  const text = data.getData('text/plain');
  // Office programs also copy a picture of their text.
  const isRich = text !== '' && data.types.includes('text/html');
  const isLong = typed.length + text.length > MAX_TEXT;
  const copied = isRich ? [] : [...data.files];
  const files = isLong ? [new File([text], 'text.txt', { type: 'text/plain' })] : copied;
  if (files.length === 0) return;
  event.preventDefault();
  add(files);
}

function StopButton({ onStop }: { readonly onStop: ComposerProps['onStop'] | undefined }) {
  const label = t('chat.stop');
  return (
    <button
      type="button"
      className="send is-stop"
      aria-label={label}
      title={label}
      onClick={() => void onStop?.()}
    >
      <Icon name="stop" />
    </button>
  );
}

function SendButton({ isOff }: { readonly isOff: boolean }) {
  const label = t('chat.send');
  return (
    <button type="submit" className="send" disabled={isOff} aria-label={label} title={label}>
      <Icon name="send" />
    </button>
  );
}

function DropHint() {
  return (
    <div className="drop">
      <Icon name="file" />
      <span>{t('chat.files.drop')}</span>
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

function buildMessage({ text, files, edit }: DraftState['draft']): OutgoingMessage {
  const model = readChosenModel();
  return {
    message: text.trim(),
    ...(edit && { parentId: edit.parentId }),
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

/** Selects the model; hidden if the oracle lists none. */
function ModelChoice() {
  const client = useOracle();
  const [list, setList] = useState<ModelList>();
  const model = useStored(readChosenModel);
  useEffect(() => {
    client.models.list().then(setList, () => undefined);
  }, [client]);
  if (!list || list.models.length === 0) return null;
  const chosen = list.models.find(({ id }) => id === model) ? model : list.default;
  const choose = (id: string) => storeText(KEY, id === list.default ? null : id);
  const label = list.models.find(({ id }) => id === chosen)?.label ?? chosen ?? '';
  return (
    <Menu
      className="btn btn-s pick"
      label={t('chat.model', { model: label })}
      groups={[
        list.models.map(({ id, label: name, vision, provider }) => ({
          label: name,
          hint: t(vision ? 'chat.model.vision' : 'chat.model.text', { provider }),
          isChecked: id === chosen,
          run: () => choose(id),
        })),
      ]}
    >
      <span className="clip">{label}</span> <Icon name="chev" />
    </Menu>
  );
}

const KEY = 'sibyl-model';

/** Undefined means the oracle's default model. */
const readChosenModel = (): string | undefined => readText(KEY) ?? undefined;
