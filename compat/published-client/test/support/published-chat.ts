import { useChat } from '@ixo/oracles-client-sdk';
import { renderHook } from '@testing-library/react';
import { expect } from 'vitest';
import { openSession } from '../../../../packages/host/test/support/stream.js';
import type { PublishedUser } from './published-user.js';

/** The client shows tool calls only with these. */
const uiComponents = { ToolCall: () => null, Error: () => null };

export interface ChatOptions {
  readonly browserTools?: NonNullable<Parameters<typeof useChat>[0]['browserTools']>;
  readonly onPaymentRequiredError?: (claims: string[]) => void;
}

/** Renders the published chat hook in a session and waits until it is connected. */
export async function renderChat(
  user: PublishedUser,
  sessionId: string,
  options: ChatOptions = {},
) {
  const { result, unmount } = renderHook(
    () =>
      useChat({
        oracleDid: user.host.did,
        sessionId,
        overrides: { baseUrl: user.host.url },
        onPaymentRequiredError: () => undefined,
        uiComponents,
        ...options,
      }),
    { wrapper: user.Provider },
  );
  await expect.poll(() => result.current.isRealTimeConnected).toBe(true);
  await expect.poll(() => result.current.isLoading).toBe(false);
  return { chat: result, unmount };
}

/** Like `renderChat`, in a new session. */
export async function renderNewChat(user: PublishedUser, options: ChatOptions = {}) {
  const sessionId = await openSession(user);
  return { user, sessionId, ...(await renderChat(user, sessionId, options)) };
}
