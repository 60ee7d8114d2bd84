import type { Citation } from '@sibyl/client';
import { useOracle } from '@sibyl/client/react';
import { createContext, use } from 'react';
import { t } from '../i18n/i18n.js';
import { Icon } from '../ui/icon.js';
import { openFile } from './save-file.js';

/** The sources of the answer that is displayed. */
export const CitationsContext = createContext<readonly Citation[]>([]);

/** Splits a text at the markers of citations, such as `[1]`. */
export function findMarkers(
  text: string,
  citations: readonly Citation[],
): (string | { readonly index: number })[] {
  const markers = citations.flatMap(({ marker }) => (marker ? [marker] : []));
  if (markers.length === 0) return [text];
  const longestFirst = markers.toSorted((a, b) => b.length - a.length).map(escapePattern);
  return text
    .split(new RegExp(`(${longestFirst.join('|')})`))
    .filter(Boolean)
    .map((piece) => {
      const index = citations.findIndex(({ marker }) => marker === piece);
      return index < 0 ? piece : { index };
    });
}

const escapePattern = (text: string) => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');

const describe = ({ title, position }: Citation) => (position ? `${title}, ${position}` : title);

/** A source inside a sentence. */
export function CiteLink({ index }: { readonly index: number }) {
  const citation = use(CitationsContext)[index];
  return citation ? <SourceLink citation={citation} className="cite" /> : null;
}

/** The sources below an answer, each once. */
export function Sources({ citations }: { readonly citations: readonly Citation[] }) {
  if (citations.length === 0) return null;
  const once = new Map(citations.map((each) => [describe(each), each]));
  return (
    <ul className="sources" aria-label={t('chat.sources')}>
      {[...once].map(([label, citation]) => (
        <li key={label}>
          <SourceLink citation={citation} className="source" hasIcon />
        </li>
      ))}
    </ul>
  );
}

interface SourceLinkProps {
  readonly citation: Citation;
  readonly className: string;
  readonly hasIcon?: boolean;
}

function SourceLink({ citation, className, hasIcon }: SourceLinkProps) {
  const client = useOracle();
  const { url, fileId, quote } = citation;
  const content = (
    <>
      {hasIcon && <Icon name={fileId ? 'file' : 'link'} />}
      <bdi>{describe(citation)}</bdi>
    </>
  );
  const title = quote && { title: quote };
  if (fileId) {
    const open = () => void openFile(client, fileId);
    return (
      <button type="button" className={className} {...title} onClick={open}>
        {content}
      </button>
    );
  }
  if (!url || !/^https?:/i.test(url)) {
    return (
      <span className={className} {...title}>
        {content}
      </span>
    );
  }
  return (
    <a
      className={className}
      href={url}
      target="_blank"
      rel="noreferrer noopener nofollow"
      {...title}
    >
      {content}
    </a>
  );
}
