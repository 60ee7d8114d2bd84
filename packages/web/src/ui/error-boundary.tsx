import { Component, type ReactNode } from 'react';
import { t } from '../i18n/i18n.js';
import { Icon } from './icon.js';

interface ErrorBoundaryProps {
  /** Rendered if the children throw. */
  readonly fallback: ReactNode;
  readonly children: ReactNode;
}

/** Without a boundary, React unmounts the whole page when a component throws or its code cannot be loaded. */
export class ErrorBoundary extends Component<ErrorBoundaryProps, { readonly hasError: boolean }> {
  override readonly state = { hasError: false };

  static getDerivedStateFromError() {
    return { hasError: true };
  }

  override render(): ReactNode {
    return this.state.hasError ? this.props.fallback : this.props.children;
  }
}

/** Starts the page again: it finds the code of a newer version. Drafts and unsent messages are stored. */
export const reload = (): void => location.reload();

interface BlankProps {
  readonly title: string;
  readonly children: ReactNode;
}

/** What is shown instead of the page. */
export const Blank = ({ title, children }: BlankProps) => (
  <main className="blank">
    <div className="stack" role="alert">
      <h1 className="title-1">{title}</h1>
      {children}
    </div>
    <button type="button" className="btn btn-primary" onClick={reload}>
      {t('chat.tryAgain')}
    </button>
  </main>
);

/** Shown in place of what could not be loaded. */
export const LoadFailure = () => (
  <div role="alert" className="notice is-fault">
    <Icon name="alert" />
    <div className="grow">
      <p>{t('chat.screenFailed')}</p>
      <div className="actions">
        <button type="button" className="btn btn-s" onClick={reload}>
          {t('chat.tryAgain')}
        </button>
      </div>
    </div>
  </div>
);
