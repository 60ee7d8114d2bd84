import type { UserPreferences } from '@sibyl/client';
import { useOracle, usePreferences } from '@sibyl/client/react';
import type { FormEvent } from 'react';
import { useFormDraft } from '../chat/drafts.js';
import {
  chooseLanguage,
  type Language,
  languages,
  type TextKey,
  t,
  useLanguage,
} from '../i18n/i18n.js';
import { usePage } from '../page/page-context.js';
import { showToast } from '../ui/toasts.js';
import { Failure, FormFoot, PageHead, Section, useAction } from './parts.js';

type Field = Exclude<keyof UserPreferences, 'updatedAt'>;

interface FieldView {
  readonly label: TextKey;
  readonly hint?: TextKey;
  readonly maxLength?: number;
  readonly choices?: readonly (readonly [string, TextKey])[];
  readonly isLong?: boolean;
}

const fields: Record<Field, FieldView> = {
  userName: { label: 'settings.prefs.userName', maxLength: 80 },
  agentName: { label: 'settings.prefs.agentName', maxLength: 80 },
  language: {
    label: 'settings.prefs.language',
    hint: 'settings.prefs.language.hint',
    maxLength: 35,
  },
  length: {
    label: 'settings.prefs.length',
    choices: [
      ['concise', 'settings.prefs.concise'],
      ['balanced', 'settings.prefs.balanced'],
      ['detailed', 'settings.prefs.detailed'],
    ],
  },
  formality: {
    label: 'settings.prefs.formality',
    choices: [
      ['casual', 'settings.prefs.casual'],
      ['friendly', 'settings.prefs.friendly'],
      ['neutral', 'settings.prefs.neutral'],
      ['professional', 'settings.prefs.professional'],
      ['formal', 'settings.prefs.formal'],
      ['technical', 'settings.prefs.technical'],
    ],
  },
  tone: { label: 'settings.prefs.tone', hint: 'settings.prefs.tone.hint', maxLength: 200 },
  format: { label: 'settings.prefs.format', hint: 'settings.prefs.format.hint', maxLength: 200 },
  customInstructions: {
    label: 'settings.prefs.custom',
    hint: 'settings.prefs.custom.hint',
    maxLength: 2000,
    isLong: true,
  },
};

/** The language of the page, and how the oracle answers. */
export function PreferencesScreen() {
  const { card } = usePage();
  const { preferences, isLoading, error, refresh } = usePreferences();
  const name = card.name;
  return (
    <>
      <PageHead title={t('chat.nav.preferences')} lede={t('settings.prefs.lede', { name })} />
      <Section title={t('settings.prefs.page')}>
        <PageLanguage />
      </Section>
      {error?.status !== 404 && (
        <Section
          title={t('settings.prefs.answers', { name })}
          hint={t('settings.prefs.answers.hint', { name })}
        >
          <Failure error={error} onRetry={refresh} />
          {!isLoading && !error && (
            <PreferencesForm
              key={preferences.updatedAt ?? 'none'}
              stored={preferences}
              onSaved={refresh}
            />
          )}
        </Section>
      )}
    </>
  );
}

function PageLanguage() {
  const language = useLanguage();
  return (
    <label className="field card card-pad">
      <span>{t('settings.prefs.pageLanguage')}</span>
      <select
        className="input"
        value={language}
        onChange={({ target }) => chooseLanguage(target.value as Language)}
      >
        {Object.entries(languages).map(([id, label]) => (
          <option key={id} value={id} lang={id}>
            {label}
          </option>
        ))}
      </select>
    </label>
  );
}

interface PreferencesFormProps {
  readonly stored: UserPreferences;
  readonly onSaved: () => Promise<void>;
}

function PreferencesForm({ stored, onSaved }: PreferencesFormProps) {
  const { preferences } = useOracle();
  const names = Object.keys(fields) as Field[];
  const initial = Object.fromEntries(names.map((field) => [field, stored[field] ?? '']));
  const { values: texts, isTyped, change, clear } = useFormDraft('preferences', initial);
  const { isBusy, error, run } = useAction();
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    const changed = names.filter((field) => texts[field] !== initial[field]);
    const changes = Object.fromEntries(
      changed.map((field) => [field, texts[field]?.trim() || null]),
    );
    await run(async () => {
      await preferences.change(changes);
      clear();
      showToast({ text: t('settings.saved') });
      await onSaved();
    });
  };
  return (
    <form className="card card-pad stack" onSubmit={submit}>
      {names.map((field) => (
        <PreferenceField
          key={field}
          view={fields[field]}
          text={texts[field] ?? ''}
          onChange={(text) => change({ [field]: text })}
        />
      ))}
      <Failure error={error} findLabel={findLabel} />
      <FormFoot
        submit={t('settings.save')}
        isDisabled={isBusy || !isTyped}
        {...(isTyped && { cancel: [t('chat.undo'), clear] as const })}
      />
    </form>
  );
}

function findLabel(path: string): string | undefined {
  const names: readonly string[] = Object.keys(fields);
  return names.includes(path) ? t(fields[path as Field].label) : undefined;
}

interface PreferenceFieldProps {
  readonly view: FieldView;
  readonly text: string;
  readonly onChange: (text: string) => void;
}

function PreferenceField({ view, text, onChange }: PreferenceFieldProps) {
  const { label, hint, maxLength, choices, isLong } = view;
  const common = {
    className: 'input',
    value: text,
    onChange: ({ target }: { target: { value: string } }) => onChange(target.value),
  };
  return (
    // biome-ignore lint/a11y/noLabelWithoutControl: the control is inside.
    <label className="field">
      <span>{t(label)}</span>
      {choices ? (
        <select {...common}>
          <option value="">{t('settings.prefs.unset')}</option>
          {choices.map(([value, choice]) => (
            <option key={value} value={value}>
              {t(choice)}
            </option>
          ))}
        </select>
      ) : isLong ? (
        <textarea {...common} dir="auto" rows={4} maxLength={maxLength} />
      ) : (
        <input {...common} dir="auto" maxLength={maxLength} />
      )}
      {hint && <span className="hint">{t(hint)}</span>}
    </label>
  );
}
