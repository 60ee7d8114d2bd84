import { useSyncExternalStore } from 'react';
import { t } from '../i18n/i18n.js';
import { IconButton } from './icon.js';

interface ToastAction {
  readonly label: string;
  readonly run: () => void;
  /** The shortcut, if the action undoes something. */
  readonly keys?: string;
}

interface Toast {
  readonly text: string;
  readonly action?: ToastAction;
  /** Runs when the toast disappears, unless its action ran. */
  readonly onExpire?: () => void;
}

interface ShownToast extends Toast {
  readonly id: number;
  readonly timer: ReturnType<typeof setTimeout>;
}

const TOAST_MS = 10_000;

let shown: readonly ShownToast[] = [];
let nextId = 0;
const listeners = new Set<() => void>();

function set(toasts: readonly ShownToast[]): void {
  shown = toasts;
  for (const listener of listeners) listener();
}

/** Shows a message for ten seconds; returns a function that removes it at once. */
export function showToast(toast: Toast): () => void {
  nextId += 1;
  const id = nextId;
  const timer = setTimeout(() => expire(id), TOAST_MS);
  set([...shown, { ...toast, id, timer }]);
  return () => expire(id);
}

function remove(id: number): ShownToast | undefined {
  const toast = shown.find((each) => each.id === id);
  clearTimeout(toast?.timer);
  if (toast) set(shown.filter((each) => each !== toast));
  return toast;
}

function expire(id: number): void {
  remove(id)?.onExpire?.();
}

function runAction(id: number): void {
  remove(id)?.action?.run();
}

/** Undoes the last thing that can still be undone; undefined if there is none. */
export function findUndo(): (() => void) | undefined {
  const toast = shown.findLast(({ action }) => action?.keys);
  return toast && (() => runAction(toast.id));
}

const subscribe = (listener: () => void) => {
  listeners.add(listener);
  return () => listeners.delete(listener);
};

/** The messages of `showToast`. */
export function Toasts() {
  const toasts = useSyncExternalStore(subscribe, () => shown);
  return (
    <div className="toast-spot" role="status">
      {toasts.map(({ id, text, action }) => (
        <div key={id} className="toast">
          <span className="grow">{text}</span>
          {action && (
            <button
              type="button"
              className="btn btn-s"
              title={action.keys}
              onClick={() => runAction(id)}
            >
              {action.label}
            </button>
          )}
          <IconButton icon="x" label={t('chat.close')} onClick={() => expire(id)} />
        </div>
      ))}
    </div>
  );
}
