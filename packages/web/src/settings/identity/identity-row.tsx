import {
  activateBrowserIdentity,
  type BrowserIdentity,
  removeBrowserIdentity,
  renameBrowserIdentity,
} from '@sibyl/client/identities';
import { type FormEvent, useState } from 'react';
import { removeDrafts, useFormDraft, useFormOpen } from '../../chat/drafts.js';
import { t } from '../../i18n/i18n.js';
import { CopyButton } from '../../ui/copy-button.js';
import { Icon } from '../../ui/icon.js';
import { Menu } from '../../ui/menu.js';
import { announceIdentityChange } from '../identity-status.js';
import { Confirm, shortenDid } from '../parts.js';

/** The page starts again with the other identity, at its conversations. */
export async function switchIdentity(did: string): Promise<void> {
  await activateBrowserIdentity(did);
  announceIdentityChange();
  location.hash = '#/';
  location.reload();
}

const toFormId = (did: string): string => `identity:${did}`;

export function IdentityRow({ identity }: { readonly identity: BrowserIdentity }) {
  const [isRenaming, setRenaming] = useFormOpen(toFormId(identity.did));
  const [isRemoving, setRemoving] = useState(false);
  const { did, isActive, isProtected } = identity;
  const name = identity.name ?? t(isActive ? 'chat.you' : 'settings.key.unnamed');
  return (
    <li>
      <span className="avatar" aria-hidden="true">
        {[...name][0]?.toUpperCase()}
      </span>
      {isRenaming && !isRemoving ? (
        <Rename did={did} name={name} onDone={() => setRenaming(false)} />
      ) : (
        <div className="grow">
          <b dir="auto">{name}</b>{' '}
          {isActive && <span className="badge is-accent">{t('settings.key.inUse')}</span>}
          <div className="small quiet">
            <code dir="ltr">{shortenDid(did)}</code>
            {isProtected && ` · ${t('settings.key.protected')}`}
          </div>
        </div>
      )}
      <BackupBadge identity={identity} />
      {!isActive && (
        <button type="button" className="btn btn-s" onClick={() => void switchIdentity(did)}>
          {t('settings.key.switch')}
        </button>
      )}
      <CopyButton text={did} label={t('settings.key.copy')} />
      <Menu
        label={t('settings.moreFor', { name })}
        groups={[
          [{ label: t('chat.rename'), icon: 'edit', run: () => setRenaming(true) }],
          [
            {
              label: t('settings.key.remove'),
              icon: 'trash',
              isDanger: true,
              run: () => setRemoving(true),
            },
          ],
        ]}
      >
        <Icon name="more" />
      </Menu>
      {isRemoving && <Remove identity={identity} name={name} onClose={() => setRemoving(false)} />}
    </li>
  );
}

function BackupBadge({ identity }: { readonly identity: BrowserIdentity }) {
  if (identity.backedUpAt !== undefined) {
    return (
      <span className="badge is-good">
        <Icon name="check" />
        {t('settings.key.backedUp')}
      </span>
    );
  }
  return <span className="badge is-warning">{t('settings.key.noBackup')}</span>;
}

interface RenameProps {
  readonly did: string;
  readonly name: string;
  readonly onDone: () => void;
}

function Rename({ did, name, onDone }: RenameProps) {
  const { values, change, clear } = useFormDraft(toFormId(did), { text: name });
  const { text } = values;
  const close = () => {
    clear();
    onDone();
  };
  const save = async (event: FormEvent) => {
    event.preventDefault();
    if (text.trim()) {
      await renameBrowserIdentity(did, text.trim());
      announceIdentityChange();
    }
    close();
  };
  return (
    <form className="line grow" onSubmit={save}>
      <input
        // biome-ignore lint/a11y/noAutofocus: the user just chose Rename.
        autoFocus
        className="input grow"
        dir="auto"
        maxLength={60}
        aria-label={t('settings.key.name')}
        value={text}
        onChange={({ target }) => change({ text: target.value })}
        onKeyDown={({ key }) => key === 'Escape' && close()}
      />
      <button type="submit" className="btn btn-s">
        {t('settings.save')}
      </button>
    </form>
  );
}

interface RemoveProps {
  readonly identity: BrowserIdentity;
  readonly name: string;
  readonly onClose: () => void;
}

/** Removes an identity only if nothing is lost by it; otherwise says what to do first. */
function Remove({ identity, name, onClose }: RemoveProps) {
  const { did, isActive, backedUpAt } = identity;
  const needsBackup = backedUpAt === undefined;
  const text = isActive
    ? t('settings.key.remove.inUse')
    : needsBackup
      ? t('settings.key.remove.noBackup')
      : t('settings.key.remove.text');
  return (
    <Confirm
      title={t('settings.key.remove.title', { name })}
      text={text}
      confirm={t('settings.key.remove.confirm')}
      isDisabled={isActive || needsBackup}
      onClose={onClose}
      onConfirm={async () => {
        await removeBrowserIdentity(did);
        removeDrafts(did);
        announceIdentityChange();
      }}
    />
  );
}
