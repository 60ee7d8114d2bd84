import type { BrowserSigner, MessageToSend, OracleCard } from '@sibyl/client';
import { createContext, use } from 'react';

/** Values that all parts of the page need. */
interface PageValues {
  readonly signer: BrowserSigner;
  readonly card: OracleCard;
  readonly settings: PageSettings;
}

/** Settings from the server that only the page needs. */
export interface PageSettings {
  /** The homeserver for uploads; attachments are disabled without it. */
  readonly matrixBaseUrl?: string;
}

export const PageContext = createContext<PageValues | undefined>(undefined);

export function usePage(): PageValues {
  const values = use(PageContext);
  if (!values) throw new Error('usePage must be used inside PageContext');
  return values;
}

/** Sends a message to the current conversation. */
export const SendContext = createContext<((message: MessageToSend) => void) | undefined>(undefined);
