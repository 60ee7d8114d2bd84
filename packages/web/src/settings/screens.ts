import type { ComponentType } from 'react';
import type { TextKey } from '../i18n/i18n.js';
import type { PageValues } from '../page/page-context.js';
import type { IconName } from '../ui/icon.js';

/** A screen besides the conversations, at `#/settings/<id>`. */
export interface SettingsScreen {
  readonly id: string;
  /** A key of the chat catalog, which is loaded before the screen. */
  readonly label: TextKey;
  readonly icon: IconName;
  /** A link in the sidebar, or in the menu behind the user's name. */
  readonly place: 'sidebar' | 'menu';
  readonly load: () => Promise<ComponentType>;
  /** Default: on every oracle. */
  readonly isAvailable?: (page: PageValues) => boolean;
}

export const screens: readonly SettingsScreen[] = [
  {
    id: 'approvals',
    label: 'chat.nav.approvals',
    icon: 'ask',
    place: 'sidebar',
    load: async () => (await import('./approvals/approvals-screen.js')).ApprovalsScreen,
  },
  {
    id: 'files',
    label: 'chat.nav.files',
    icon: 'file',
    place: 'sidebar',
    load: async () => (await import('./files-screen.js')).FilesScreen,
  },
  {
    id: 'schedules',
    label: 'chat.nav.schedules',
    icon: 'cal',
    place: 'sidebar',
    load: async () => (await import('./schedules/schedules-screen.js')).SchedulesScreen,
  },
  {
    id: 'permissions',
    label: 'chat.nav.permissions',
    icon: 'shield',
    place: 'menu',
    load: async () => (await import('./permissions/permissions-screen.js')).PermissionsScreen,
  },
  {
    id: 'key',
    label: 'chat.nav.key',
    icon: 'key',
    place: 'menu',
    load: async () => (await import('./identity/key-screen.js')).KeyScreen,
  },
  {
    id: 'memory',
    label: 'chat.nav.memory',
    icon: 'mark',
    place: 'menu',
    load: async () => (await import('./memory-screen.js')).MemoryScreen,
  },
  {
    id: 'usage',
    label: 'chat.nav.usage',
    icon: 'chart',
    place: 'menu',
    load: async () => (await import('./usage-screen.js')).UsageScreen,
  },
  {
    id: 'activity',
    label: 'chat.nav.activity',
    icon: 'pulse',
    place: 'menu',
    load: async () => (await import('./activity-screen.js')).ActivityScreen,
  },
  {
    id: 'preferences',
    label: 'chat.nav.preferences',
    icon: 'gear',
    place: 'menu',
    load: async () => (await import('./preferences-screen.js')).PreferencesScreen,
  },
  {
    id: 'data',
    label: 'chat.nav.data',
    icon: 'save',
    place: 'menu',
    load: async () => (await import('./data-screen.js')).DataScreen,
  },
  {
    id: 'matrix',
    label: 'chat.nav.matrix',
    icon: 'clip',
    place: 'menu',
    load: async () => (await import('../panels/matrix-panel.js')).MatrixPanel,
    isAvailable: ({ settings }) => settings.matrixBaseUrl !== undefined,
  },
];
