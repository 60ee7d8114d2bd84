import { useEffect, useRef } from 'react';
import { t } from '../i18n/i18n.js';
import { screens } from '../settings/screens.js';
import type { IconName } from '../ui/icon.js';
import type { PageValues } from './page-context.js';
import { go } from './router.js';

/** Something to do from the palette or by keys. */
export interface Command {
  readonly label: string;
  readonly icon: IconName;
  readonly keys?: string;
  readonly run: () => void;
}

interface CommandDeps {
  readonly page: PageValues;
  onHelp(): void;
  onToggleSidebar(): void;
}

export const isMac = /Mac|iPhone|iPad/.test(navigator.platform);
/** How the key is written on this keyboard. */
const MOD = isMac ? '⌘' : 'Ctrl+';
const SHIFT = isMac ? '⇧' : 'Shift+';

export const keyNames = {
  search: `${MOD}K`,
  newConversation: `${MOD}${SHIFT}O`,
  sidebar: `${MOD}B`,
  help: '?',
} as const;

export function listCommands({ page, onHelp, onToggleSidebar }: CommandDeps): Command[] {
  const newConversation = () => go({ name: 'welcome' });
  return [
    {
      label: t('chat.newConversation'),
      icon: 'plus',
      keys: keyNames.newConversation,
      run: newConversation,
    },
    ...screens
      .filter(({ isAvailable }) => isAvailable?.(page) ?? true)
      .map(({ id, label, icon }) => ({
        label: t(label),
        icon,
        run: () => go({ name: 'settings', screen: id }),
      })),
    { label: t('chat.sidebar.toggle'), icon: 'menu', keys: keyNames.sidebar, run: onToggleSidebar },
    { label: t('chat.shortcuts'), icon: 'words', keys: keyNames.help, run: onHelp },
  ];
}

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
    return { k: actions.search, b: actions.toggleSidebar }[key];
  }
  return key === '?' && !isTyping(event) ? actions.help : undefined;
}

function isTyping({ target }: KeyboardEvent): boolean {
  return (
    target instanceof HTMLElement && target.matches('input, textarea, select, [contenteditable]')
  );
}
