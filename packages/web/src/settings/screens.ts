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
    id: 'permissions',
    label: 'chat.nav.permissions',
    icon: 'shield',
    place: 'menu',
    load: async () => (await import('../panels/delegation-panel.js')).DelegationPanel,
  },
  {
    id: 'key',
    label: 'chat.nav.key',
    icon: 'key',
    place: 'menu',
    load: async () => (await import('../panels/key-panel.js')).KeyPanel,
  },
  {
    id: 'preferences',
    label: 'chat.nav.preferences',
    icon: 'gear',
    place: 'menu',
    load: async () => (await import('../panels/preferences-panel.js')).PreferencesPanel,
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
