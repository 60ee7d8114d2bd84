import { isValidElement, type ReactNode } from 'react';

/** Joins the text of elements. */
export function collectText(node: ReactNode): string {
  if (typeof node === 'string' || typeof node === 'number') return String(node);
  if (Array.isArray(node)) return node.map(collectText).join('');
  if (isValidElement<{ children?: ReactNode }>(node)) return collectText(node.props.children);
  return '';
}
