import type { UserPreferences } from '@sibyl/client';
import { usePreferences } from '@sibyl/client/react';

const labels: Record<Exclude<keyof UserPreferences, 'updatedAt'>, string> = {
  agentName: 'Name of the agent',
  userName: 'Your name',
  language: 'Language',
  tone: 'Tone',
  formality: 'Formality',
  length: 'Length',
  format: 'Format',
  customInstructions: 'Instructions',
};

/** How the user wants the agent to behave; changed by telling it. */
export function PreferencesPanel() {
  const { preferences, isLoading, error } = usePreferences();
  const entries = Object.entries(labels).flatMap(([field, label]) => {
    const value = preferences[field as keyof typeof labels];
    return value ? [[label, value] as const] : [];
  });
  if (error?.status === 404) return <p>This oracle keeps no preferences.</p>;
  if (error) return <p className="fault">{error.message}</p>;
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
        <p aria-busy={isLoading}>{isLoading ? 'Loading…' : 'Nothing is set yet.'}</p>
      )}
      <p className="quiet">
        Change them by saying so in any conversation, for instance “answer in Spanish from now on”
        or “forget what you call me”. They hold in all of your conversations.
      </p>
    </>
  );
}
