import { isValidElement, memo, type ReactNode } from 'react';
import ReactMarkdown, { type Components } from 'react-markdown';
import rehypeHighlight from 'rehype-highlight';
import remarkGfm from 'remark-gfm';
import { CopyButton } from '../page/icon-button.js';
import { isRenderable, splitBlocks } from './markdown-blocks.js';

const remarkPlugins = [remarkGfm];
const rehypePlugins = [rehypeHighlight];

const components: Components = {
  pre: ({ children }) => <CodeBlock>{children}</CodeBlock>,
  a: ({ href, children }) => (
    <a href={href} target="_blank" rel="noreferrer noopener nofollow">
      {children}
    </a>
  ),
  // A link: loading an image from an address of the model's choice could leak data to that server.
  img: ({ src, alt }) => (
    <a href={String(src)} target="_blank" rel="noreferrer noopener nofollow">
      {alt || 'Image'}
    </a>
  ),
  table: ({ children }) => (
    <div className="table-frame">
      <table>{children}</table>
    </div>
  ),
};

/** Renders Markdown; HTML in it is displayed as text. Only the block that grows is rendered again. */
export function Markdown({ text }: { readonly text: string }): ReactNode {
  return (
    <div className="markdown">
      {splitBlocks(text).map((block, index) => (
        <Block key={index} text={block} />
      ))}
    </div>
  );
}

const Block = memo(({ text }: { readonly text: string }) =>
  isRenderable(text) ? (
    <ReactMarkdown
      remarkPlugins={remarkPlugins}
      rehypePlugins={rehypePlugins}
      components={components}
    >
      {text}
    </ReactMarkdown>
  ) : (
    <p className="text">{text}</p>
  ),
);

/** Code with its language and a copy button. */
function CodeBlock({ children }: { readonly children?: ReactNode }) {
  return (
    <div className="code">
      <div className="code-head">
        <span>{findLanguage(children)}</span>
        <CopyButton text={collectText(children).replace(/\n$/, '')} label="Copy code" />
      </div>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard. */}
      <pre tabIndex={0}>{children}</pre>
    </div>
  );
}

function findLanguage(node: ReactNode): string {
  if (!isValidElement<{ className?: string }>(node)) return '';
  return /language-([\w+#-]+)/.exec(node.props.className ?? '')?.[1] ?? '';
}

/** Joins the elements that the highlighter created into one text. */
function collectText(node: ReactNode): string {
  if (typeof node === 'string' || typeof node === 'number') return String(node);
  if (Array.isArray(node)) return node.map(collectText).join('');
  if (isValidElement<{ children?: ReactNode }>(node)) return collectText(node.props.children);
  return '';
}
