import { type BrowserIdentity, confirmBrowserBackup } from '@sibyl/client/identities';
import { type ComponentType, useState } from 'react';
import { formatDate } from '../../i18n/format.js';
import { type TextKey, t } from '../../i18n/i18n.js';
import { Icon, type IconName } from '../../ui/icon.js';
import { announceIdentityChange } from '../identity-status.js';
import { LeaveGuard, Notice } from '../parts.js';
import { DeviceBackup } from './backup-device.js';
import { type BackupProps, type BackupStep, FileBackup } from './backup-file.js';
import { WordsBackup } from './backup-words.js';

interface Method {
  readonly id: 'file' | 'words' | 'device';
  readonly icon: IconName;
  readonly title: TextKey;
  readonly hint: TextKey;
  readonly Form: ComponentType<BackupProps>;
}

const methods: readonly Method[] = [
  {
    id: 'file',
    icon: 'save',
    title: 'settings.backup.file',
    hint: 'settings.backup.file.hint',
    Form: FileBackup,
  },
  {
    id: 'words',
    icon: 'words',
    title: 'settings.backup.words',
    hint: 'settings.backup.words.hint',
    Form: WordsBackup,
  },
  {
    id: 'device',
    icon: 'qr',
    title: 'settings.backup.device',
    hint: 'settings.backup.device.hint',
    Form: DeviceBackup,
  },
];

const steps = {
  choose: 'settings.backup.step.choose',
  save: 'settings.backup.step.save',
  check: 'settings.backup.step.check',
} as const satisfies Record<BackupStep, TextKey>;

const LEAVE_TEXTS = {
  title: 'settings.leave.title',
  text: 'settings.leave.text',
  stay: 'settings.leave.stay',
  leave: 'settings.leave.leave',
} as const;

/** Backs up a key; once that is done, says so and offers another backup. */
export function BackupCard({ identity }: { readonly identity: BrowserIdentity }) {
  const [isOpen, setOpen] = useState(false);
  if (identity.backedUpAt === undefined || isOpen) {
    return <BackupWizard identity={identity} onDone={() => setOpen(false)} />;
  }
  return (
    <Notice kind="good">
      <p>{t('settings.backup.exists', { date: formatDate(identity.backedUpAt) })}</p>
      <div className="actions">
        <button type="button" className="btn btn-s" onClick={() => setOpen(true)}>
          {t('settings.backup.another')}
        </button>
      </div>
    </Notice>
  );
}

interface BackupWizardProps {
  readonly identity: BrowserIdentity;
  readonly onDone: () => void;
}

function BackupWizard({ identity, onDone }: BackupWizardProps) {
  const [method, setMethod] = useState<Method>(methods[0] as Method);
  const [step, setStep] = useState<BackupStep>('choose');
  const choose = (next: Method) => {
    setMethod(next);
    setStep('choose');
  };
  const finish = async () => {
    await confirmBrowserBackup(identity.did);
    setStep('choose');
    announceIdentityChange();
    onDone();
  };
  return (
    <section className="card" aria-label={t('settings.backup.label')}>
      <LeaveGuard isActive={step !== 'choose'} texts={LEAVE_TEXTS} />
      <div className="card-head">
        <Steps current={step} />
        <span className="hint wide-only">{t('settings.backup.duration')}</span>
      </div>
      <div className="card-pad stack">
        <fieldset className="stack">
          <legend className="title-2">{t('settings.backup.question')}</legend>
          <div className="tiles">
            {methods.map((each) => (
              <label key={each.id} className="tile">
                <input
                  type="radio"
                  name="backup"
                  checked={each === method}
                  onChange={() => choose(each)}
                />
                <Icon name={each.icon} />
                <b>{t(each.title)}</b>
                <span className="hint">{t(each.hint)}</span>
              </label>
            ))}
          </div>
        </fieldset>
        <method.Form
          key={method.id}
          identity={identity}
          step={step}
          onStep={setStep}
          onDone={finish}
        />
      </div>
    </section>
  );
}

function Steps({ current }: { readonly current: BackupStep }) {
  return (
    <ol className="steps grow">
      {Object.entries(steps).map(([step, label], i) => (
        <li key={step} aria-current={step === current ? 'step' : undefined}>
          <b>{i + 1}</b>
          {t(label)}
        </li>
      ))}
    </ol>
  );
}
