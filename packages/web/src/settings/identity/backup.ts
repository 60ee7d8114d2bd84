import type { BrowserIdentity } from '@sibyl/client/identities';

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
