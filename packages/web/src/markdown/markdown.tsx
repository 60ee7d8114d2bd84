import { memo, type ReactNode } from 'react';
import ReactMarkdown, { type Components } from 'react-markdown';
import rehypeHighlight from 'rehype-highlight';
import remarkGfm from 'remark-gfm';
import { blocksOf } from './blocks-of.js';
import { CodeBlock } from './code-block.js';
import { isRenderable } from './is-renderable.js';

const remarkPlugins = [remarkGfm];
const rehypePlugins = [rehypeHighlight];

const components: Components = {
  pre: ({ children }) => <CodeBlock>{children}</CodeBlock>,
  a: ({ href, children }) => (
    <a href={href} target="_blank" rel="noreferrer noopener nofollow">
      {children}
    </a>
  ),
  // An image would be fetched from wherever the model says, and tell that server something.
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

/** Text of a model as it is meant; HTML in it is shown as text. Only the block that grows is rendered again. */
export function Markdown({ text }: { readonly text: string }): ReactNode {
  return (
    <div className="markdown">
      {blocksOf(text).map((block, index) => (
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
