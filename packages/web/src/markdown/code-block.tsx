import { isValidElement, type ReactNode } from 'react';
import { CopyButton } from '../page/copy-button.js';

/** Code with its language and a button that copies it. */
export function CodeBlock({ children }: { readonly children?: ReactNode }) {
  return (
    <div className="code">
      <div className="code-head">
        <span>{languageOf(children)}</span>
        <CopyButton text={textOf(children).replace(/\n$/, '')} label="Copy the code" />
      </div>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard. */}
      <pre tabIndex={0}>{children}</pre>
    </div>
  );
}

function languageOf(node: ReactNode): string {
  if (!isValidElement<{ className?: string }>(node)) return '';
  return /language-([\w+#-]+)/.exec(node.props.className ?? '')?.[1] ?? '';
}

/** What the highlighter has cut into pieces, as one text. */
function textOf(node: ReactNode): string {
  if (typeof node === 'string' || typeof node === 'number') return String(node);
  if (Array.isArray(node)) return node.map(textOf).join('');
  if (isValidElement<{ children?: ReactNode }>(node)) return textOf(node.props.children);
  return '';
}
