import { type TextKey, t } from '../i18n/i18n.js';
import { Dialog } from '../ui/dialog.js';
import { isMac } from './commands.js';

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
