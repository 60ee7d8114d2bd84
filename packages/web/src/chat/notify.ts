import type { UseChat } from '@sibyl/client/react';
import { useEffect, useRef } from 'react';
import { t } from '../i18n/i18n.js';
import { readText, storeText } from '../page/stored-value.js';
import { showToast } from '../ui/toasts.js';

/** An answer that takes longer is worth a notification. */
const LONG_MS = 10_000;
const KEY = 'sibyl-notifications-asked';
const MAX_BODY = 140;

const isSupported = () => 'Notification' in globalThis && globalThis.isSecureContext;

/** Shows a notification when a long answer is finished while the page is in the background. */
export function useNotification(title: string, isBusy: boolean, { messages }: UseChat): void {
  const startedAt = useRef<number>(undefined);
  const latest = useRef(messages);
  useEffect(() => {
    latest.current = messages;
  });
  useEffect(() => {
    if (!isBusy || !isSupported()) return;
    startedAt.current = performance.now();
    const timer = setTimeout(askOnce, LONG_MS);
    return () => {
      clearTimeout(timer);
      const isLong = performance.now() - (startedAt.current ?? 0) >= LONG_MS;
      const answer = latest.current.at(-1)?.content ?? '';
      if (isLong && document.hidden && Notification.permission === 'granted')
        new Notification(title || t('chat.answer'), {
          body: answer.slice(0, MAX_BODY),
          tag: title,
        });
    };
  }, [isBusy, title]);
}

/** Asks for permission once, while the user waits for a long answer. */
function askOnce(): void {
  if (Notification.permission !== 'default' || readText(KEY)) return;
  storeText(KEY, 'yes');
  showToast({
    text: t('chat.notify.ask'),
    action: { label: t('chat.notify.yes'), run: () => void Notification.requestPermission() },
  });
}
