import type { Capability, DelegationInfo, PluginInfo, Schedule } from '@sibyl/client';
import { nowMs } from '../../i18n/format.js';

/** Something that a plugin asks the user for. */
export interface AskedPermission {
  readonly plugin: PluginInfo;
  readonly title: string;
  readonly reason: string;
  readonly capability: Capability;
}

export interface PermissionData {
  readonly delegations: readonly DelegationInfo[];
  readonly plugins: readonly PluginInfo[];
  readonly schedules: readonly Schedule[];
}

export interface GrantTerms {
  readonly capabilities: readonly Capability[];
  readonly expiration: number;
}

const USER = '{user}';

/** What the plugins of an oracle ask for. */
export const listAsked = (
  plugins: readonly PluginInfo[],
  user: string,
): readonly AskedPermission[] =>
  plugins.flatMap((plugin) =>
    (plugin.permissions ?? []).map(({ can, with: resource, title, reason }) => ({
      plugin,
      title,
      reason,
      capability: { can, with: resource.replaceAll(USER, user) },
    })),
  );

type Held = Pick<Capability, 'can' | 'with'>;

export const isSame = (a: Held, b: Held): boolean => a.can === b.can && a.with === b.with;

/** Whether a capability is granted: exactly, or by a wider one. */
export const isGranted = (wanted: Held, granted: readonly Held[]): boolean =>
  granted.some(
    ({ can, with: resource }) =>
      covers(can, wanted.can, '/') &&
      (covers(resource, wanted.with, '/') || covers(resource, wanted.with, ':')),
  );

function covers(granted: string, wanted: string, separator: '/' | ':'): boolean {
  if (granted === wanted || (granted === '*' && separator === '/')) return true;
  return granted.endsWith(`${separator}*`) && wanted.startsWith(granted.slice(0, -1));
}

/** The delegation with which the oracle acts, if it has one. */
export const findCurrent = (delegations: readonly DelegationInfo[]): DelegationInfo | undefined =>
  delegations.find(({ isCurrent, expiration }) => isCurrent && !isExpired(expiration));

export const isExpired = (expiration: number | undefined): boolean =>
  expiration !== undefined && expiration * 1000 <= nowMs();

export const DAY_SECONDS = 86_400;
export const inDays = (days: number): number => Math.floor(nowMs() / 1000) + days * DAY_SECONDS;

/** Ends soon enough to be worth a word. */
export const endsSoon = (expiration: number): boolean =>
  expiration * 1000 - nowMs() < 2 * DAY_SECONDS * 1000;
