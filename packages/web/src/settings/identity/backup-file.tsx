import {
  type BrowserIdentity,
  decryptKeyBackup,
  encryptKeyBackup,
  exportBrowserSeed,
  readBackupDid,
} from '@sibyl/client/identities';
import { type FormEvent, type ReactNode, useState } from 'react';
import { t } from '../../i18n/i18n.js';
import { Icon } from '../../ui/icon.js';
import { Failure, FormFoot, saveFile, useAction } from '../parts.js';

/** Fewer characters can be guessed from the file. */
const MIN_LENGTH = 12;
const STRONG_LENGTH = 18;

/** A file that opens only with a passphrase. */
export function FileBackup({ identity, step, onStep, onDone }: BackupProps) {
  const [passphrase, setPassphrase] = useState('');
  const [repeated, setRepeated] = useState('');
  const { isBusy, error, run } = useAction();
  const type = (text: string) => {
    setPassphrase(text);
    onStep(text === '' ? 'choose' : 'save');
  };
  const save = async (event: FormEvent) => {
    event.preventDefault();
    const isSaved = await run(async () => {
      const seed = await exportBrowserSeed(identity.did);
      const text = await encryptKeyBackup(seed, passphrase, identity);
      saveFile(`sibyl-key-${identity.did.slice(-6)}.json`, text, 'application/json');
    });
    if (isSaved) onStep('check');
  };
  if (step === 'check') {
    return <FileCheck did={identity.did} passphrase={passphrase} onDone={onDone} onAgain={save} />;
  }
  const isLong = [...passphrase].length >= MIN_LENGTH;
  const isDifferent = repeated !== '' && repeated !== passphrase;
  return (
    <form className="stack" onSubmit={save}>
      <PassphraseField isNew value={passphrase} onChange={type}>
        <Strength passphrase={passphrase} />
      </PassphraseField>
      <PassphraseField
        label={t('settings.backup.repeat')}
        isNew
        isInvalid={isDifferent}
        value={repeated}
        onChange={setRepeated}
      >
        {isDifferent && (
          <span className="small is-fault line">
            <Icon name="alert" />
            {t('settings.backup.different')}
          </span>
        )}
      </PassphraseField>
      <Failure error={error} />
      <FormFoot
        submit={
          <>
            <Icon name="save" />
            {isBusy ? t('settings.backup.encrypting') : t('settings.backup.save')}
          </>
        }
        isDisabled={isBusy || !isLong || repeated !== passphrase}
        hint={t('settings.backup.staysOpen')}
      />
    </form>
  );
}

function Strength({ passphrase }: { readonly passphrase: string }) {
  const length = [...passphrase].length;
  if (length === 0) return <span className="hint">{t('settings.backup.passphrase.hint')}</span>;
  if (length < MIN_LENGTH) {
    return (
      <span className="hint">{t('settings.backup.passphrase.short', { min: MIN_LENGTH })}</span>
    );
  }
  return (
    <span className="hint">
      {length >= STRONG_LENGTH && (
        <span className="is-good strong">{t('settings.backup.passphrase.strong')} </span>
      )}
      {t('settings.backup.passphrase.hint')}
    </span>
  );
}

interface FileCheckProps {
  readonly did: string;
  readonly passphrase: string;
  readonly onDone: () => Promise<void>;
  readonly onAgain: (event: FormEvent) => Promise<void>;
}

/** Opens the saved file, so that the user knows where it is and that it works. */
function FileCheck({ did, passphrase, onDone, onAgain }: FileCheckProps) {
  const { isBusy, error, run } = useAction();
  const check = (file: File | undefined) => {
    if (!file) return;
    void run(async () => {
      const text = await file.text();
      if (readBackupDid(text) !== did) throw new Error(t('settings.backup.otherKey'));
      await decryptKeyBackup(text, passphrase);
      await onDone();
    });
  };
  return (
    <div className="stack">
      <p>{t('settings.backup.file.check')}</p>
      <BackupFileField
        label={t('settings.backup.file.choose')}
        isDisabled={isBusy}
        onChoose={check}
      />
      <Failure error={error} />
      <div className="actions">
        <button type="button" className="btn" disabled={isBusy} onClick={onAgain}>
          {t('settings.backup.saveAgain')}
        </button>
        <button
          type="button"
          className="btn btn-quiet"
          disabled={isBusy}
          onClick={() => void run(onDone)}
        >
          {t('settings.backup.skipCheck')}
        </button>
      </div>
    </div>
  );
}

export type BackupStep = 'choose' | 'save' | 'check';

/** Of the form of each way to back up a key. */
export interface BackupProps {
  readonly identity: BrowserIdentity;
  readonly step: BackupStep;
  /** From `save` on, the screen does not close. */
  readonly onStep: (step: BackupStep) => void;
  /** Called when the user has the backup. */
  readonly onDone: () => Promise<void>;
}

interface PassphraseFieldProps {
  readonly label?: string;
  /** Whether the user invents it here. */
  readonly isNew?: boolean;
  readonly isInvalid?: boolean;
  readonly value: string;
  readonly onChange: (passphrase: string) => void;
  /** Below the field. */
  readonly children?: ReactNode;
}

/** The passphrase of a backup file. */
export function PassphraseField({
  label = t('settings.backup.passphrase'),
  isNew = false,
  isInvalid = false,
  value,
  onChange,
  children,
}: PassphraseFieldProps) {
  return (
    <label className="field">
      <span>{label}</span>
      <input
        className="input"
        type="password"
        autoComplete={isNew ? 'new-password' : 'current-password'}
        required
        aria-invalid={isInvalid || undefined}
        value={value}
        onChange={({ target }) => onChange(target.value)}
      />
      {children}
    </label>
  );
}

interface BackupFileFieldProps {
  readonly label: string;
  readonly isDisabled?: boolean;
  readonly onChoose: (file: File | undefined) => void;
}

export function BackupFileField({ label, isDisabled, onChoose }: BackupFileFieldProps) {
  return (
    <label className="field">
      <span>{label}</span>
      <input
        className="input file-input"
        type="file"
        required
        disabled={isDisabled}
        onChange={({ target }) => onChoose(target.files?.[0])}
      />
    </label>
  );
}
