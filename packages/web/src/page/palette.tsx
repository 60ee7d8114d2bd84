import { useSearch } from '@sibyl/client/react';
import { type KeyboardEvent, useDeferredValue, useId, useMemo, useRef, useState } from 'react';
import { type TextKey, t } from '../i18n/i18n.js';
import { screens } from '../settings/screens.js';
import { Dialog } from '../ui/dialog.js';
import { Icon, type IconName } from '../ui/icon.js';
import { isComposing, isMac, keyNames } from './commands.js';
import { type PageValues, usePage } from './page-context.js';
import { go } from './router.js';
import { nameSession } from './session-marks.js';

interface Found {
  readonly key: string;
  readonly group: string;
  readonly icon: IconName;
  readonly label: string;
  /** Where the words are in `hint`. */
  readonly highlights?: readonly (readonly [number, number])[];
  readonly hint?: string;
  readonly keys?: string;
  readonly run: () => void;
}

/** Something to do. */
interface Command {
  readonly label: string;
  readonly icon: IconName;
  readonly keys?: string;
  readonly run: () => void;
}

interface CommandActions {
  onHelp(): void;
  onToggleSidebar(): void;
}

interface PaletteProps extends CommandActions {
  readonly recent: readonly { readonly sessionId: string; readonly title: string }[];
  readonly onClose: () => void;
}

const MAX_RECENT = 6;

/** Searches conversations and commands. */
export function Palette({ recent, onClose, ...actions }: PaletteProps) {
  const commands = listCommands(usePage(), actions);
  const [text, setText] = useState('');
  const [index, setIndex] = useState(0);
  const listId = useId();
  const { items, isLoading } = useFound(text, commands, recent);
  const list = useRef<HTMLDivElement>(null);
  const selected = Math.min(index, items.length - 1);
  const choose = (item: Found | undefined) => {
    if (!item) return;
    onClose();
    item.run();
  };
  const move = (by: number) => {
    const next = (selected + by + items.length) % Math.max(1, items.length);
    setIndex(next);
    list.current?.querySelectorAll('[role="option"]')[next]?.scrollIntoView({ block: 'nearest' });
  };
  const enter = () => choose(items[selected]);
  return (
    <Dialog title={t('chat.search')} isTitleHidden className="palette" onClose={onClose}>
      <SearchInput
        text={text}
        listId={listId}
        selectedId={items[selected] && `${listId}-${selected}`}
        keys={{ ArrowDown: () => move(1), ArrowUp: () => move(-1), Enter: enter }}
        onChange={(typed) => {
          setText(typed);
          setIndex(0);
        }}
      />
      <div
        ref={list}
        id={listId}
        className="palette-list"
        role="listbox"
        aria-label={t('chat.search.results')}
      >
        {items.map((item, position) => (
          <Row
            key={item.key}
            id={`${listId}-${position}`}
            item={item}
            isFirst={items[position - 1]?.group !== item.group}
            isSelected={position === selected}
            onChoose={() => choose(item)}
          />
        ))}
      </div>
      {items.length === 0 && (
        <p className="empty" role="status">
          {t(isLoading ? 'chat.loading' : 'chat.search.nothing')}
        </p>
      )}
      <KeyHints />
    </Dialog>
  );
}

const KeyHints = () => (
  <div className="line palette-foot small quiet wide-only" aria-hidden="true">
    <kbd>↑</kbd>
    <kbd>↓</kbd> {t('chat.search.move')}
    <kbd>↵</kbd> {t('chat.search.open')}
  </div>
);

interface SearchInputProps {
  readonly text: string;
  readonly listId: string;
  readonly selectedId: string | undefined;
  readonly onChange: (text: string) => void;
  /** What keys do. */
  readonly keys: Readonly<Record<string, () => void>>;
}

function SearchInput({ text, listId, selectedId, onChange, keys }: SearchInputProps) {
  const onKeyDown = (event: KeyboardEvent) => {
    const action = keys[event.key];
    if (!action || isComposing(event)) return;
    event.preventDefault();
    action();
  };
  return (
    <div className="palette-in">
      <Icon name="search" />
      <input
        // biome-ignore lint/a11y/noAutofocus: the user just opened the search.
        autoFocus
        role="combobox"
        aria-expanded="true"
        aria-controls={listId}
        aria-activedescendant={selectedId}
        aria-label={t('chat.search')}
        placeholder={t('chat.search')}
        dir="auto"
        value={text}
        onChange={({ target }) => onChange(target.value)}
        onKeyDown={onKeyDown}
      />
      <kbd>Esc</kbd>
    </div>
  );
}

/** Conversations first, then commands. */
function useFound(text: string, commands: readonly Command[], recent: PaletteProps['recent']) {
  const deferred = useDeferredValue(text);
  const { results, isLoading } = useSearch(deferred, { limit: 12 });
  const items = useMemo(() => {
    const words = text.trim().toLowerCase();
    const conversations: Found[] = words
      ? results.map(({ sessionId, messageId, title, snippet, highlights }, position) => ({
          key: `${sessionId} ${messageId ?? 'title'} ${position}`,
          group: t('chat.sidebar.label'),
          icon: 'chat',
          label: nameSession({ title }),
          ...(messageId && { hint: snippet, highlights }),
          run: () => go({ name: 'conversation', sessionId, ...(messageId && { messageId }) }),
        }))
      : recent.slice(0, MAX_RECENT).map(({ sessionId, title }) => ({
          key: sessionId,
          group: t('chat.sidebar.label'),
          icon: 'chat',
          label: nameSession({ title }),
          run: () => go({ name: 'conversation', sessionId }),
        }));
    const matching: Found[] = commands
      .filter(({ label }) => label.toLowerCase().includes(words))
      .map((command) => ({ ...command, key: command.label, group: t('chat.commands') }));
    return [...conversations, ...matching];
  }, [text, results, commands, recent]);
  return { items, isLoading };
}

function listCommands(page: PageValues, { onHelp, onToggleSidebar }: CommandActions): Command[] {
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

interface RowProps {
  readonly id: string;
  readonly item: Found;
  readonly isFirst: boolean;
  readonly isSelected: boolean;
  readonly onChoose: () => void;
}

function Row({ id, item, isFirst, isSelected, onChoose }: RowProps) {
  const { group, icon, label, hint, highlights = [], keys } = item;
  return (
    <>
      {isFirst && (
        <div className="side-group" role="presentation">
          {group}
        </div>
      )}
      {/* biome-ignore lint/a11y/useKeyWithClickEvents: the input handles the keys, as in every combobox. */}
      {/* biome-ignore lint/a11y/useFocusableInteractive: focus stays in the input, as in every combobox. */}
      <div id={id} className="pop-item" role="option" aria-selected={isSelected} onClick={onChoose}>
        <Icon name={icon} />
        <span className="grow clip" dir="auto">
          {label}
          {hint && (
            <span className="hint clip pop-hint">
              <Marked text={hint} highlights={highlights} />
            </span>
          )}
        </span>
        {keys && <kbd>{keys}</kbd>}
      </div>
    </>
  );
}

interface MarkedProps {
  readonly text: string;
  readonly highlights: readonly (readonly [number, number])[];
}

/** Emphasizes what was found. */
function Marked({ text, highlights }: MarkedProps) {
  let end = 0;
  const pieces = highlights.flatMap(([from, to]) => {
    const before = text.slice(end, from);
    end = to;
    return [before, <mark key={from}>{text.slice(from, to)}</mark>];
  });
  return (
    <>
      {pieces}
      {text.slice(end)}
    </>
  );
}

/** The help sheet: what it does, and its keys. */
const shortcuts: readonly (readonly [TextKey, readonly string[]])[] = [
  ['chat.send', ['↵']],
  ['chat.newLine', [isMac ? '⇧' : 'Shift', '↵']],
  ['chat.stopAnswer', ['Esc']],
  ['chat.editLast', ['↑']],
  ['chat.search', [isMac ? '⌘' : 'Ctrl', 'K']],
  ['chat.newConversation', isMac ? ['⌘', '⇧', 'O'] : ['Ctrl', 'Shift', 'O']],
  ['chat.sidebar.toggle', [isMac ? '⌘' : 'Ctrl', 'B']],
  ['chat.rename', ['F2']],
  ['chat.undo', [isMac ? '⌘' : 'Ctrl', 'Z']],
  ['chat.shortcuts', ['?']],
];

/** All keyboard shortcuts. */
export function Shortcuts({ onClose }: { readonly onClose: () => void }) {
  return (
    <Dialog title={t('chat.shortcuts')} onClose={onClose}>
      <dl className="card-pad keys">
        {shortcuts.map(([label, keys]) => (
          <div key={label}>
            <dt>{t(label)}</dt>
            <dd>
              {keys.map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}
