import { type KeyboardEvent as ReactKeyboardEvent, useEffect, useRef } from 'react';
import { findUndo } from '../ui/toasts.js';

export const isMac = /Mac|iPhone|iPad/.test(navigator.platform);
/** How the key is written on this keyboard. */
const MOD = isMac ? '⌘' : 'Ctrl+';
const SHIFT = isMac ? '⇧' : 'Shift+';

export const keyNames = {
  search: `${MOD}K`,
  newConversation: `${MOD}${SHIFT}O`,
  sidebar: `${MOD}B`,
  help: '?',
  undo: `${MOD}Z`,
} as const;

interface KeyActions {
  search(): void;
  newConversation(): void;
  toggleSidebar(): void;
  help(): void;
}

/** Runs an action for keys that work everywhere on the page. */
export function useGlobalKeys(actions: KeyActions): void {
  const latest = useRef(actions);
  useEffect(() => {
    latest.current = actions;
  });
  useEffect(() => {
    const onKeyDown = (event: KeyboardEvent) => {
      const action = findAction(event, latest.current);
      if (!action) return;
      event.preventDefault();
      action();
    };
    document.addEventListener('keydown', onKeyDown);
    return () => document.removeEventListener('keydown', onKeyDown);
  }, []);
}

function findAction(event: KeyboardEvent, actions: KeyActions): (() => void) | undefined {
  const key = event.key.toLowerCase();
  if (isMac ? event.metaKey : event.ctrlKey) {
    if (event.shiftKey) return key === 'o' ? actions.newConversation : undefined;
    return { k: actions.search, b: actions.toggleSidebar, z: findUndoFor(event) }[key];
  }
  return key === '?' && !isTyping(event) ? actions.help : undefined;
}

/** Whether a key belongs to an input method, such as for Japanese: Enter then accepts what it suggests. */
export const isComposing = (event: ReactKeyboardEvent): boolean =>
  // In Safari, the key that ends a composition is not part of it, except by its old code.
  event.nativeEvent.isComposing || event.keyCode === 229;

/** In a field with text, the key belongs to the text. */
const findUndoFor = ({ target }: KeyboardEvent): (() => void) | undefined =>
  (target as Partial<HTMLInputElement> | null)?.value ? undefined : findUndo();

function isTyping({ target }: KeyboardEvent): boolean {
  return (
    target instanceof HTMLElement && target.matches('input, textarea, select, [contenteditable]')
  );
}
