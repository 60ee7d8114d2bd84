import { OracleClientError } from '@sibyl/client';
import { type ReactNode, useCallback, useEffect, useState } from 'react';
import { explainError } from '../i18n/explain-error.js';
import '../styles/answer.css';
import '../styles/settings.css';
import './settings-screens.css';
import { type TextKey, t } from '../i18n/i18n.js';
import { CopyButton } from '../ui/copy-button.js';
import { Dialog } from '../ui/dialog.js';
import { Icon, type IconName } from '../ui/icon.js';
import { explainInvalid, type FindLabel } from './approvals/arguments.js';

interface PageHeadProps {
  readonly title: string;
  readonly lede: string;
  /** Beside the title. */
  readonly children?: ReactNode;
}

/** The title of a settings screen and what it is for. */
export function PageHead({ title, lede, children }: PageHeadProps) {
  return (
    <div className="page-head">
      <div className="grow">
        <h1 className="title-1">{title}</h1>
        <p className="lede">{lede}</p>
      </div>
      {children}
    </div>
  );
}

interface SectionProps {
  readonly title: string;
  readonly hint?: string;
  readonly badge?: ReactNode;
  readonly action?: ReactNode;
  readonly children: ReactNode;
}

export function Section({ title, hint, badge, action, children }: SectionProps) {
  return (
    <section className="stack" aria-label={title}>
      <div>
        <div className="line">
          <h2 className="title-2 grow">
            {title} {badge}
          </h2>
          {action}
        </div>
        {hint && <p className="quiet small">{hint}</p>}
      </div>
      {children}
    </section>
  );
}

export function Empty({ title, hint }: { readonly title: string; readonly hint?: string }) {
  return (
    <div className="card empty">
      <p className="strong">{title}</p>
      {hint && <p className="small">{hint}</p>}
    </div>
  );
}

interface NoticeProps {
  readonly kind: 'fault' | 'warning' | 'good';
  readonly icon?: IconName;
  readonly children: ReactNode;
}

const noticeIcons = { fault: 'alert', warning: 'alert', good: 'check' } as const;

/** A message about one part of a screen. */
export function Notice({ kind, icon = noticeIcons[kind], children }: NoticeProps) {
  return (
    <div className={`notice is-${kind}`} role={kind === 'fault' ? 'alert' : 'status'}>
      <Icon name={icon} />
      <div className="grow">{children}</div>
    </div>
  );
}

interface FailureProps {
  readonly error: Error | undefined;
  /** For the fields of a form that the server can find invalid. */
  readonly findLabel?: FindLabel;
  readonly onRetry?: () => unknown;
}

/** Says what went wrong, and that nothing was lost by it. */
export function Failure({ error, findLabel = () => undefined, onRetry }: FailureProps) {
  if (!error) return null;
  return (
    <Notice kind="fault">
      <FailureText error={error} findLabel={findLabel} />
      {onRetry && (
        <div className="actions">
          <button type="button" className="btn btn-s" onClick={() => void onRetry()}>
            {t('chat.tryAgain')}
          </button>
        </div>
      )}
    </Notice>
  );
}

interface FailureTextProps {
  readonly error: Error;
  readonly findLabel: FindLabel;
}

function FailureText({ error, findLabel }: FailureTextProps) {
  const { code = '', lines = [] } = error instanceof OracleClientError ? error : {};
  const known = failureTexts[code];
  if (known) return <p>{t(known)}</p>;
  if (code === 'validation_failed') {
    return <Invalid texts={explainInvalid(lines, findLabel)} details={error.message} />;
  }
  return (
    <>
      <p>{t('settings.failed')}</p>
      <p className="small quiet" dir="auto">
        {explainError(error)}
      </p>
    </>
  );
}

interface InvalidProps {
  /** Empty if the page does not know the fields. */
  readonly texts: readonly string[];
  readonly details: string;
}

const Invalid = ({ texts, details }: InvalidProps) => (
  <>
    {(texts.length > 0 ? texts : [t('settings.failed')]).map((text) => (
      <p key={text}>{text}</p>
    ))}
    <details className="fold">
      <summary>
        <Icon name="right" flip className="i-chev" />
        {t('settings.technical')}
      </summary>
      <p className="small quiet break" dir="auto">
        {details}
      </p>
    </details>
  </>
);

/** Errors that the page explains itself, in the language of the user. */
const failureTexts: Readonly<Record<string, TextKey | undefined>> = {
  network_error: 'settings.failed.network',
  connection_lost: 'settings.failed.network',
  rate_limited: 'settings.failed.busy',
  key_locked: 'settings.unlock.declined',
  key_passphrase_wrong: 'settings.add.wrongPassphrase',
  key_invalid: 'settings.add.invalid',
};

export interface Action {
  readonly isBusy: boolean;
  readonly error: Error | undefined;
  /** Runs one piece of work at a time; returns whether it succeeded. */
  readonly run: (work: () => Promise<unknown>) => Promise<boolean>;
}

/** The state of what a button does. */
export function useAction(): Action {
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<Error>();
  const run = useCallback(async (work: () => Promise<unknown>) => {
    setBusy(true);
    setError(undefined);
    try {
      await work();
      return true;
    } catch (cause) {
      setError(cause as Error);
      return false;
    } finally {
      setBusy(false);
    }
  }, []);
  return { isBusy, error, run };
}

interface SwitchProps {
  readonly label: string;
  /** The id of an element that explains it. */
  readonly describedBy?: string;
  readonly isOn: boolean;
  readonly isDisabled?: boolean;
  readonly onChange: (isOn: boolean) => void;
}

export function Switch({ label, describedBy, isOn, isDisabled, onChange }: SwitchProps) {
  return (
    <input
      className="switch"
      type="checkbox"
      // biome-ignore lint/a11y/useAriaPropsForRole: a checkbox has the state itself.
      role="switch"
      aria-label={label}
      aria-describedby={describedBy}
      checked={isOn}
      disabled={isDisabled}
      onChange={({ target }) => onChange(target.checked)}
    />
  );
}

interface ShownOnceProps {
  readonly text: string;
  /** Each value, and the label of the button that copies it. */
  readonly values: readonly (readonly [string, string])[];
  readonly onClose: () => void;
}

/** Secrets that the server does not show again. */
export function ShownOnce({ text, values, onClose }: ShownOnceProps) {
  return (
    <Notice kind="warning" icon="key">
      <p className="strong">{text}</p>
      {values.map(([value, label]) => (
        <div key={label}>
          <code dir="ltr" className="break secret" data-testid="shown-once">
            {value}
          </code>
          <CopyButton text={value} label={label} hasText />
        </div>
      ))}
      <div className="actions">
        <button type="button" className="btn btn-s" onClick={onClose}>
          {t('settings.stored')}
        </button>
      </div>
    </Notice>
  );
}

interface RevocableRowProps {
  readonly icon: IconName;
  readonly title: string;
  readonly dir?: 'auto' | 'ltr';
  readonly facts: readonly string[];
  readonly onRevoke: () => Promise<void>;
}

/** Something that the user has signed and can take back. */
export function RevocableRow({ icon, title, dir = 'auto', facts, onRevoke }: RevocableRowProps) {
  const { isBusy, error, run } = useAction();
  return (
    <li className="row-wrap">
      <Icon name={icon} />
      <div className="grow">
        <b dir={dir}>{title}</b>
        <div className="small quiet">{facts.join(' · ')}</div>
      </div>
      <button
        type="button"
        className="btn btn-s"
        disabled={isBusy}
        aria-label={t('settings.granted.revoke.label', { title })}
        onClick={() => void run(onRevoke)}
      >
        {t('settings.granted.revoke')}
      </button>
      {error && (
        <div className="row-below">
          <Failure error={error} />
        </div>
      )}
    </li>
  );
}

interface FormFootProps {
  /** Names what the form does. */
  readonly submit: ReactNode;
  readonly isDisabled: boolean;
  /** Leaves the form. */
  readonly cancel?: readonly [label: string, run: () => void];
  /** Beside the buttons. */
  readonly hint?: string;
}

/** The end of a form: what it does, and the way out. */
export function FormFoot({ submit, isDisabled, cancel, hint }: FormFootProps) {
  const [label, run] = cancel ?? [];
  return (
    <div className="actions">
      <button type="submit" className="btn btn-primary" disabled={isDisabled}>
        {submit}
      </button>
      {run && (
        <button type="button" className="btn btn-quiet" onClick={run}>
          {label}
        </button>
      )}
      {hint && <span className="hint">{hint}</span>}
    </div>
  );
}

interface ConfirmProps {
  readonly title: string;
  readonly text: string;
  /** Names what happens. */
  readonly confirm: string;
  readonly onConfirm: () => Promise<unknown>;
  readonly onClose: () => void;
  readonly children?: ReactNode;
  readonly isDisabled?: boolean;
}

/** Asks before something that cannot be undone. */
export function Confirm({ title, text, confirm, onConfirm, onClose, ...rest }: ConfirmProps) {
  const { isBusy, error, run } = useAction();
  const accept = async () => {
    if (await run(onConfirm)) onClose();
  };
  return (
    <Dialog title={title} onClose={onClose} isLocked={isBusy}>
      <div className="card-pad stack">
        <p>{text}</p>
        {rest.children}
        <Failure error={error} />
        <div className="actions">
          <button
            type="button"
            className="btn btn-danger"
            disabled={isBusy || rest.isDisabled}
            onClick={accept}
          >
            {confirm}
          </button>
          <button type="button" className="btn btn-quiet" disabled={isBusy} onClick={onClose}>
            {t('chat.cancel')}
          </button>
        </div>
      </div>
    </Dialog>
  );
}

/** Saves a text or bytes as a file of the user. */
export function saveFile(name: string, content: BlobPart, type: string): void {
  const url = URL.createObjectURL(new Blob([content], { type }));
  const link = Object.assign(document.createElement('a'), { href: url, download: name });
  link.click();
  // The browser reads it after the click.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** The parts of a DID that people compare. */
export const shortenDid = (did: string): string =>
  did.length > 24 ? `${did.slice(0, 14)}…${did.slice(-6)}` : did;

interface LifetimeFieldProps {
  readonly choices: readonly number[];
  readonly days: number;
  readonly onChange: (days: number) => void;
}

/** For how many days something is valid. */
export function LifetimeField(props: LifetimeFieldProps) {
  return (
    // biome-ignore lint/a11y/noLabelWithoutControl: the control is inside.
    <label className="field">
      <span>{t('settings.validFor')}</span>
      <LifetimeSelect className="input" {...props} />
    </label>
  );
}

interface LifetimeSelectProps extends LifetimeFieldProps {
  readonly className: string;
  readonly 'aria-label'?: string;
}

export function LifetimeSelect({ choices, days, onChange, ...rest }: LifetimeSelectProps) {
  return (
    <select {...rest} value={days} onChange={({ target }) => onChange(Number(target.value))}>
      {choices.map((each) => (
        <option key={each} value={each}>
          {t('settings.forDays', { count: each })}
        </option>
      ))}
    </select>
  );
}

type LeaveTexts = Readonly<Record<'title' | 'text' | 'stay' | 'leave', TextKey>>;

const secretTexts: LeaveTexts = {
  title: 'settings.secret.title',
  text: 'settings.secret.text',
  stay: 'chat.cancel',
  leave: 'chat.discard',
};

interface LeaveGuardProps {
  readonly isActive: boolean;
  readonly texts?: LeaveTexts;
}

/** Changes of the address that the user has confirmed. */
const confirmed = new WeakSet<Event>();

/** Keeps the user on the screen while something on it would be lost, such as a secret, which no draft keeps, and asks first. */
export function LeaveGuard({ isActive, texts = secretTexts }: LeaveGuardProps) {
  const [wanted, setWanted] = useState<string>();
  useEffect(() => {
    if (!isActive) return;
    const here = location.href;
    const stay = (event: Event) => {
      if (location.href === here || confirmed.has(event)) return;
      // The router must not see the new address.
      event.stopImmediatePropagation();
      setWanted(location.hash);
      history.replaceState(history.state, '', here);
    };
    const warn = (event: BeforeUnloadEvent) => event.preventDefault();
    window.addEventListener('hashchange', stay, true);
    window.addEventListener('popstate', stay, true);
    window.addEventListener('beforeunload', warn);
    return () => {
      window.removeEventListener('hashchange', stay, true);
      window.removeEventListener('popstate', stay, true);
      window.removeEventListener('beforeunload', warn);
      setWanted(undefined);
    };
  }, [isActive]);
  if (wanted === undefined) return null;
  return <LeaveQuestion texts={texts} wanted={wanted} onStay={() => setWanted(undefined)} />;
}

interface LeaveQuestionProps {
  readonly texts: LeaveTexts;
  readonly wanted: string;
  readonly onStay: () => void;
}

function LeaveQuestion({ texts, wanted, onStay }: LeaveQuestionProps) {
  const leave = () => {
    onStay();
    history.replaceState(history.state, '', wanted);
    // As `replaceState` reports no change.
    const event = new HashChangeEvent('hashchange');
    confirmed.add(event);
    window.dispatchEvent(event);
  };
  return (
    <Dialog title={t(texts.title)} onClose={onStay}>
      <div className="card-pad stack">
        <p>{t(texts.text)}</p>
        <div className="actions">
          <button type="button" className="btn btn-primary" onClick={onStay}>
            {t(texts.stay)}
          </button>
          <button type="button" className="btn btn-danger" onClick={leave}>
            {t(texts.leave)}
          </button>
        </div>
      </div>
    </Dialog>
  );
}
