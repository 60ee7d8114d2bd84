import type { BrowserIdentity } from '@sibyl/client/identities';
import type { ReactNode } from 'react';
import { t } from '../../i18n/i18n.js';

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
