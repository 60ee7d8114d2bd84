import { t } from '../i18n/i18n.js';
import { Dialog } from '../ui/dialog.js';
import { shortcuts } from './commands.js';

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
