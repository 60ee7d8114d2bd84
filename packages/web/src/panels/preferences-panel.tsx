import type { UserPreferences } from '@sibyl/client';
import { usePreferences } from '@sibyl/client/react';

const labels: Record<Exclude<keyof UserPreferences, 'updatedAt'>, string> = {
  agentName: 'Agent name',
  userName: 'Your name',
  language: 'Language',
  tone: 'Tone',
  formality: 'Formality',
  length: 'Length',
  format: 'Format',
  customInstructions: 'Custom instructions',
};

/** The user's preferences, which change through messages. */
export function PreferencesPanel() {
  const { preferences, isLoading, error } = usePreferences();
  const entries = Object.entries(labels).flatMap(([field, label]) => {
    const value = preferences[field as keyof typeof labels];
    return value ? [[label, value] as const] : [];
  });
  if (error?.status === 404) return <p>This oracle does not support preferences.</p>;
  if (error) return <p className="error">{error.message}</p>;
  return (
    <>
      {entries.length > 0 ? (
        <dl className="facts">
          {entries.map(([label, value]) => (
            <div key={label}>
              <dt>{label}</dt>
              <dd>{value}</dd>
            </div>
          ))}
        </dl>
      ) : (
        <p aria-busy={isLoading}>{isLoading ? 'Loading…' : 'No preferences set yet.'}</p>
      )}
      <p className="quiet">
        To change a preference, ask in any conversation, for example “answer in Spanish from now on”
        or “forget my name”. Preferences apply to all your conversations.
      </p>
    </>
  );
}
