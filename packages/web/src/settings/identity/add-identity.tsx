import {
  createBrowserIdentity,
  decryptKeyBackup,
  importBrowserIdentity,
  listBrowserIdentities,
  parsePrivateKey,
  unpackSeed,
} from '@sibyl/client/identities';
import { type FormEvent, useState } from 'react';
import { type TextKey, t } from '../../i18n/i18n.js';
import { Dialog } from '../../ui/dialog.js';
import { Icon, type IconName } from '../../ui/icon.js';
import { announceIdentityChange } from '../identity-status.js';
import { Failure, FormFoot, LeaveGuard, useAction } from '../parts.js';
import { BackupFileField, PassphraseField } from './backup-file.js';
import { findDeviceKey, forgetDeviceKey } from './device-link.js';
import { switchIdentity } from './identity-row.js';

type Source = 'device' | 'file' | 'words' | 'new';

const sources: readonly (readonly [Exclude<Source, 'device'>, IconName, TextKey, TextKey])[] = [
  ['file', 'save', 'settings.backup.file', 'settings.add.file.hint'],
  ['words', 'words', 'settings.add.words', 'settings.add.words.hint'],
  ['new', 'plus', 'settings.add.new', 'settings.add.new.hint'],
];

interface AddIdentityProps {
  /** The identity that the page shows; absent while it is locked. */
  readonly own?: string | undefined;
  readonly onClose: () => void;
}

/** Adds an identity to those of this browser, then offers to switch to it. */
export function AddIdentity({ own, onClose }: AddIdentityProps) {
  const [source, setSource] = useState<Source>(findDeviceKey() ? 'device' : 'file');
  const [added, setAdded] = useState<AddedIdentity>();
  const [hasInput, setHasInput] = useState(false);
  const close = () => {
    forgetDeviceKey();
    onClose();
  };
  if (added) return <Added added={added} own={own} onClose={close} />;
  return (
    // What was typed is lost only by Cancel, not by an accidental Escape or click.
    <Dialog title={t('settings.add.title')} onClose={close} isLocked={hasInput}>
      <LeaveGuard isActive={hasInput} />
      <div className="card-pad stack">
        {source !== 'device' && (
          <fieldset>
            <legend className="vh">{t('settings.add.title')}</legend>
            <div className="tiles">
              {sources.map(([id, icon, title, hint]) => (
                <label key={id} className="tile">
                  <input
                    type="radio"
                    name="source"
                    checked={id === source}
                    onChange={() => {
                      setSource(id);
                      setHasInput(false);
                    }}
                  />
                  <Icon name={icon} />
                  <b>{t(title)}</b>
                  <span className="hint">{t(hint)}</span>
                </label>
              ))}
            </div>
          </fieldset>
        )}
        <AddForm
          key={source}
          source={source}
          onInput={() => setHasInput(true)}
          onAdded={setAdded}
          onCancel={close}
        />
      </div>
    </Dialog>
  );
}

interface AddFormProps {
  readonly source: Source;
  readonly onInput: () => void;
  readonly onCancel: () => void;
  readonly onAdded: (added: AddedIdentity) => void;
}

interface AddedIdentity {
  readonly did: string;
  /** Whether this browser had it before. */
  readonly wasKnown: boolean;
}

function AddForm({ source, onInput, onAdded, onCancel }: AddFormProps) {
  const [fields, setFields] = useState<Fields>({ text: '', passphrase: '', name: '' });
  const { isBusy, error, run } = useAction();
  const set = (change: Partial<Fields>) => {
    setFields({ ...fields, ...change });
    onInput();
  };
  const submit = (event: FormEvent) => {
    event.preventDefault();
    void run(async () => {
      const known = await listBrowserIdentities();
      const { did } = await add(source, fields);
      announceIdentityChange();
      onAdded({ did, wasKnown: known.some((each) => each.did === did) });
    });
  };
  return (
    <form className="stack" onSubmit={submit}>
      <SourceFields source={source} fields={fields} onChange={set} />
      <Failure error={error} />
      <FormFoot
        submit={isBusy ? t('settings.add.busy') : t('settings.add.submit')}
        isDisabled={isBusy}
        cancel={[t('chat.cancel'), onCancel]}
        hint={t('settings.add.keeps')}
      />
    </form>
  );
}

interface Fields {
  readonly file?: File | undefined;
  readonly text: string;
  readonly passphrase: string;
  readonly name: string;
}

async function add(source: Source, { file, text, passphrase, name }: Fields) {
  const named = name.trim() ? { name: name.trim() } : {};
  switch (source) {
    case 'new':
      return createBrowserIdentity(named);
    case 'file': {
      if (!file) throw new Error(t('settings.add.noFile'));
      const restored = await decryptKeyBackup(await file.text(), passphrase);
      const stored = restored.name === undefined ? {} : { name: restored.name };
      return importBrowserIdentity(restored.seed, { ...stored, ...named });
    }
    case 'words':
      return importBrowserIdentity(await parseText(text), named);
    case 'device': {
      const packed = findDeviceKey() ?? new Uint8Array();
      const seed = await unpackSeed(packed, text.replaceAll(/\D/g, '')).catch(() => {
        throw new Error(t('settings.add.wrongNumber'));
      });
      return importBrowserIdentity(seed, named);
    }
  }
}

const PRIVATE_KEY = /^(M[A-Za-z0-9+/=]{92}|[0-9a-f]{64})$/i;

/** Words, or a private key as the command line prints it. */
async function parseText(text: string): Promise<Uint8Array> {
  // A program may have wrapped a key into lines.
  const joined = text.replaceAll(/\s/g, '');
  if (!/\s/.test(text.trim()) || PRIVATE_KEY.test(joined)) return parsePrivateKey(joined);
  const { parseWords } = await import('@sibyl/client/words');
  const parsed = parseWords(text);
  if ('seed' in parsed) return parsed.seed;
  switch (parsed.problem) {
    case 'count':
      throw new Error(t('settings.add.wordCount', { count: parsed.count }));
    case 'unknown':
      throw new Error(t('settings.add.unknownWord', { word: parsed.word }));
    case 'checksum':
      throw new Error(t('settings.add.checksum'));
  }
}

interface FieldProps {
  readonly fields: Fields;
  readonly onChange: (change: Partial<Fields>) => void;
}

function SourceFields({ source, ...props }: FieldProps & { readonly source: Source }) {
  return (
    <>
      {source === 'file' && <FileFields {...props} />}
      {source === 'words' && <WordsField {...props} />}
      {source === 'device' && <NumberField {...props} />}
      <NameField {...props} />
    </>
  );
}

function FileFields({ fields, onChange }: FieldProps) {
  return (
    <>
      <BackupFileField
        label={t('settings.add.chooseFile')}
        onChoose={(file) => onChange({ file })}
      />
      <PassphraseField
        value={fields.passphrase}
        onChange={(passphrase) => onChange({ passphrase })}
      />
    </>
  );
}

function WordsField({ fields, onChange }: FieldProps) {
  return (
    <label className="field">
      <span>{t('settings.add.typeWords')}</span>
      <textarea
        className="input"
        dir="ltr"
        rows={4}
        required
        autoComplete="off"
        autoCapitalize="none"
        spellCheck={false}
        value={fields.text}
        onChange={({ target }) => onChange({ text: target.value })}
      />
      <span className="hint">{t('settings.add.typeWords.hint')}</span>
    </label>
  );
}

function NumberField({ fields, onChange }: FieldProps) {
  return (
    <label className="field">
      <span>{t('settings.add.number')}</span>
      <input
        className="input code-num num"
        dir="ltr"
        required
        inputMode="numeric"
        autoComplete="off"
        maxLength={12}
        value={fields.text}
        onChange={({ target }) => onChange({ text: target.value })}
      />
      <span className="hint">{t('settings.add.number.hint')}</span>
    </label>
  );
}

function NameField({ fields, onChange }: FieldProps) {
  return (
    <label className="field">
      <span>
        {t('settings.add.name')} <span className="hint">{t('settings.optional')}</span>
      </span>
      <input
        className="input"
        dir="auto"
        maxLength={60}
        value={fields.name}
        onChange={({ target }) => onChange({ name: target.value })}
      />
      <span className="hint">{t('settings.add.name.hint')}</span>
    </label>
  );
}

interface AddedProps {
  readonly added: AddedIdentity;
  readonly own: string | undefined;
  readonly onClose: () => void;
}

function Added({ added: { did, wasKnown }, own, onClose }: AddedProps) {
  const isInUse = did === own;
  const title = wasKnown ? 'settings.added.known' : 'settings.added.title';
  return (
    <Dialog title={t(isInUse ? 'settings.added.inUse' : title)} onClose={onClose}>
      <div className="card-pad stack">
        <p>{t(isInUse ? 'settings.added.inUse.text' : 'settings.added.text')}</p>
        <div className="actions">
          {!isInUse && (
            <button
              type="button"
              className="btn btn-primary"
              onClick={() => void switchIdentity(did)}
            >
              {t('settings.added.switch')}
            </button>
          )}
          <button type="button" className="btn" onClick={onClose}>
            {t(isInUse ? 'chat.close' : 'settings.added.stay')}
          </button>
        </div>
      </div>
    </Dialog>
  );
}
