import { useSyncExternalStore } from 'react';

/** What the address shows. */
export type Route =
  | { readonly name: 'welcome' }
  | { readonly name: 'conversation'; readonly sessionId: string; readonly messageId?: string }
  | { readonly name: 'settings'; readonly screen: string };

const CONVERSATION = /^#\/s\/([\w-]+)(?:\/([\w-]+))?$/;
const SETTINGS = /^#\/settings\/([\w-]+)$/;

export function parseRoute(hash: string): Route {
  const [, sessionId, messageId] = CONVERSATION.exec(hash) ?? [];
  if (sessionId) return { name: 'conversation', sessionId, ...(messageId && { messageId }) };
  const [, screen] = SETTINGS.exec(hash) ?? [];
  return screen ? { name: 'settings', screen } : { name: 'welcome' };
}

/** The address of a route, for links. */
export function toHash(route: Route): string {
  switch (route.name) {
    case 'welcome':
      return '#/';
    case 'conversation':
      return `#/s/${route.sessionId}${route.messageId ? `/${route.messageId}` : ''}`;
    case 'settings':
      return `#/settings/${route.screen}`;
  }
}

export function go(route: Route): void {
  location.hash = toHash(route);
}

/** Removes the message from the address once it was shown, so that it can be shown again, and a reload shows the end. */
export function forgetMessage(sessionId: string): void {
  history.replaceState(history.state, '', toHash({ name: 'conversation', sessionId }));
}

const subscribe = (listener: () => void) => {
  window.addEventListener('hashchange', listener);
  return () => window.removeEventListener('hashchange', listener);
};

let last: { readonly hash: string; readonly route: Route } | undefined;

/** The same object while the address stays the same. */
function readRoute(): Route {
  if (last?.hash !== location.hash) {
    last = { hash: location.hash, route: parseRoute(location.hash) };
  }
  return last.route;
}

export const useRoute = (): Route => useSyncExternalStore(subscribe, readRoute);
