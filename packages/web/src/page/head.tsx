import { createContext, type ReactNode, type RefObject, use, useEffect } from 'react';
import { t } from '../i18n/i18n.js';
import { IconButton } from '../ui/icon.js';

/** Opens the list of conversations where it is hidden. */
export const SidebarContext = createContext<() => void>(() => undefined);

interface HeadProps {
  readonly title: string;
  /** Settings pages have their own title; it is shown only where the sidebar is hidden. */
  readonly isPage?: boolean;
  readonly children?: ReactNode;
}

/** The bar above the content. */
export function Head({ title, isPage, children }: HeadProps) {
  const openSidebar = use(SidebarContext);
  const Title = isPage ? 'p' : 'h1';
  return (
    <header className={isPage ? 'head is-page' : 'head'}>
      <IconButton
        className="open-side"
        icon="menu"
        label={t('chat.sidebar.open')}
        onClick={openSidebar}
      />
      <Title className="head-title grow clip" dir="auto">
        {/* The title of a conversation may still be on its way. */}
        {title || <span className="vh">{t('chat.loading')}</span>}
      </Title>
      {children}
    </header>
  );
}

/** Moves focus into the drawer when it opens, and back when it closes. */
export function useDrawerFocus(side: RefObject<HTMLElement | null>, isOpen: boolean): void {
  useEffect(() => {
    if (!isOpen) return;
    const opener = document.activeElement;
    side.current?.querySelector<HTMLElement>('.side-link')?.focus();
    return () => {
      if (opener instanceof HTMLElement) queueMicrotask(() => opener.focus());
    };
  }, [side, isOpen]);
}
