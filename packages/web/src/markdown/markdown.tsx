import type { Citation } from '@sibyl/client';
import { type MouseEvent, memo, type ReactNode, use } from 'react';
import ReactMarkdown, { type Components } from 'react-markdown';
import remarkGfm from 'remark-gfm';
import remarkMath from 'remark-math';
import { CitationsContext, CiteLink, findMarkers } from '../chat/citations.js';
import { showReordering } from '../i18n/format.js';
import { useLanguage } from '../i18n/i18n.js';
import { CodeBlock, Fenced, Formula } from './code-block.js';
import { AskedImage, Table, TaskItem } from './elements.js';
import { isRenderable, normalizeMath, readLongCode, splitBlocks } from './markdown-blocks.js';
import '../styles/markdown.css';

// A single dollar sign is more often money than math; `normalizeMath` decides.
const MATH = [remarkMath, { singleDollarTextMath: false }] as const;

const components: Components = {
  pre: ({ children }) => <CodeBlock>{children}</CodeBlock>,
  code: ({ className = '', children }) =>
    className.includes('math-inline') ? (
      <Formula tex={String(children)} />
    ) : (
      <code className={className || undefined} dir="ltr">
        {typeof children === 'string' ? showReordering(children) : children}
      </code>
    ),
  a: ({ href = '', id, children }) => {
    if (href.startsWith(CITE)) return <CiteLink index={Number(href.slice(CITE.length))} />;
    if (href.startsWith(NOTE)) return <NoteLink {...{ href, id, children }} />;
    // An address that is not safe.
    if (!href) return <>{children}</>;
    return (
      <a href={href} target="_blank" rel="noreferrer noopener nofollow">
        {children}
      </a>
    );
  },
  img: ({ src, alt }) => <AskedImage src={String(src ?? '')} alt={alt ?? ''} />,
  table: ({ children }) => <Table>{children}</Table>,
  li: ({ className, children }) =>
    className?.includes('task-list-item') ? (
      <TaskItem>{children}</TaskItem>
    ) : (
      <li className={className}>{children}</li>
    ),
};

/** Renders Markdown; HTML in it is displayed as text. Only the block that grows is rendered again. */
export function Markdown({ text }: { readonly text: string }): ReactNode {
  const citations = use(CitationsContext);
  return (
    <div className="markdown">
      {splitBlocks(normalizeMath(text)).map((block, index) => (
        <Block key={index} text={block} citations={citations} />
      ))}
    </div>
  );
}

interface BlockProps {
  readonly text: string;
  readonly citations: readonly Citation[];
}

const Block = memo(({ text, citations }: BlockProps) => {
  useLanguage();
  const longCode = readLongCode(text);
  if (longCode) return <Fenced {...longCode} />;
  if (!isRenderable(text)) return <p className="text">{text}</p>;
  return (
    <ReactMarkdown
      remarkPlugins={[remarkGfm, [...MATH], [linkCitations, citations]]}
      remarkRehypeOptions={NOTES}
      components={components}
    >
      {text}
    </ReactMarkdown>
  );
});

/** A link between a footnote and its place in the text. */
const NOTE = '#user-content-fn';

const NOTES = { footnoteLabelProperties: { className: ['vh'] } };

interface NoteLinkProps {
  readonly href: string;
  readonly id: string | undefined;
  readonly children: ReactNode;
}

/** Scrolls within the answer: the address of the page names the conversation, and other answers have the same numbers. */
function NoteLink({ href, id, children }: NoteLinkProps) {
  const show = (event: MouseEvent<HTMLAnchorElement>) => {
    event.preventDefault();
    const answer = event.currentTarget.closest('.markdown');
    answer?.querySelector(`#${CSS.escape(href.slice(1))}`)?.scrollIntoView({ block: 'center' });
  };
  return (
    <a href={href} id={id} onClick={show}>
      {children}
    </a>
  );
}

/** A link that `CiteLink` renders; the number is the index of the citation. */
const CITE = '#cite-';

/** What the page reads of a node of the syntax tree. */
interface TreeNode {
  readonly type: string;
  readonly value?: string;
  readonly url?: string;
  children?: TreeNode[];
}

/** Turns the markers of citations, such as `[1]`, into links. */
function linkCitations(citations: readonly Citation[]) {
  return (tree: TreeNode) => {
    if (citations.length > 0) visitTexts(tree, citations);
  };
}

function visitTexts(node: TreeNode, citations: readonly Citation[]): void {
  if (!node.children || node.type === 'link') return;
  node.children = node.children.flatMap((child): TreeNode | TreeNode[] => {
    if (child.type !== 'text') {
      visitTexts(child, citations);
      return child;
    }
    return findMarkers(child.value ?? '', citations).map((piece) =>
      typeof piece === 'string'
        ? { type: 'text', value: piece }
        : { type: 'link', url: `${CITE}${piece.index}`, children: [] },
    );
  });
}
