import { Component, type ReactNode } from 'react';

interface ShieldProps {
  /** Shown where what is inside cannot be. */
  readonly instead: ReactNode;
  readonly children: ReactNode;
}

/** Keeps what cannot be shown from taking the page along: React would take all of it away. */
export class Shield extends Component<ShieldProps, { readonly hasFailed: boolean }> {
  override readonly state = { hasFailed: false };

  static getDerivedStateFromError() {
    return { hasFailed: true };
  }

  override render(): ReactNode {
    return this.state.hasFailed ? this.props.instead : this.props.children;
  }
}
