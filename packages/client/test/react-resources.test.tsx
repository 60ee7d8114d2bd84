import './support/dom.js';
import { useDelegation, usePreferences, useSessions } from '@sibyl/client/react';
import { act, renderHook, waitFor } from '@testing-library/react';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { createUser, POLL_OPTIONS, useReactPages } from './support/react-page.js';

const pages = useReactPages();
afterEach(() => void vi.restoreAllMocks());

/** Hides or shows the page, as a browser does when the user changes tabs. */
function setVisibility(state: DocumentVisibilityState): void {
  vi.spyOn(document, 'visibilityState', 'get').mockReturnValue(state);
  document.dispatchEvent(new window.Event('visibilitychange'));
}

describe('useSessions', () => {
  it('lists sessions in pages, and creates, renames and removes them', async () => {
    const { client, wrapper } = pages.open(createUser());
    for (const title of ['a', 'b', 'c']) await client.sessions.create({ title });
    const { result } = renderHook(() => useSessions({ pageSize: 2 }), { wrapper });
    expect(result.current).toMatchObject({ isLoading: true, sessions: [] });
    const titles = () => result.current.sessions.map(({ title }) => title);
    await waitFor(() => expect(titles()).toEqual(['c', 'b']), POLL_OPTIONS);
    expect(result.current).toMatchObject({ total: 3, hasMore: true });
    await act(() => result.current.loadMore());
    await waitFor(() => expect(titles()).toEqual(['c', 'b', 'a']), POLL_OPTIONS);
    expect(result.current.hasMore).toBe(false);

    const { sessionId } = await act(() => result.current.create('d'));
    expect(titles()).toContain('d');
    await act(() => result.current.rename(sessionId, 'e'));
    expect(titles()).toContain('e');
    await act(() => result.current.remove(sessionId));
    expect(titles()).toEqual(['c', 'b', 'a']);
  });

  it('loads one page more at a time, and only that one', async () => {
    const { client, wrapper } = pages.open(createUser());
    // Otherwise the list is loaded once more when the stream of changes is connected.
    setVisibility('hidden');
    for (let i = 0; i < 8; i += 1) await client.sessions.create({ title: `${i}` });
    const { calls } = vi.spyOn(client.sessions, 'list').mock;
    const { result } = renderHook(() => useSessions({ pageSize: 2 }), { wrapper });
    const titles = () => result.current.sessions.map(({ title }) => title);
    await waitFor(() => expect(titles()).toEqual(['7', '6']), POLL_OPTIONS);
    await act(() => result.current.loadMore());
    expect(titles()).toEqual(['7', '6', '5', '4']);
    await act(() => result.current.loadMore());
    expect(titles()).toEqual(['7', '6', '5', '4', '3', '2']);
    expect(calls.slice(-2)).toMatchObject([[{ offset: 2, limit: 2 }], [{ offset: 4, limit: 2 }]]);
    await act(() => result.current.refresh());
    expect(calls.at(-1)).toMatchObject([{ offset: 0, limit: 6 }]);
  });

  it('leaves out no session that has moved while more were loaded', async () => {
    const { client, wrapper } = pages.open(createUser());
    setVisibility('hidden');
    for (let i = 0; i < 6; i += 1) await client.sessions.create({ title: `${i}` });
    const { result } = renderHook(() => useSessions({ pageSize: 2 }), { wrapper });
    const titles = () => result.current.sessions.map(({ title }) => title);
    await waitFor(() => expect(titles()).toEqual(['5', '4']), POLL_OPTIONS);
    await client.sessions.create({ title: 'new' });
    await act(() => result.current.loadMore());
    expect(titles()).toEqual(['new', '5', '4', '3']);
    const { sessionId = '' } = result.current.sessions[0] ?? {};
    await client.sessions.delete(sessionId);
    await act(() => result.current.loadMore());
    expect(titles()).toEqual(['5', '4', '3', '2', '1', '0']);
    expect(result.current.hasMore).toBe(false);
  });

  it('returns the error', async () => {
    const { did, ...locked } = createUser();
    const invoke = () => Promise.reject(new Error('locked'));
    const { wrapper } = pages.open({ ...locked, did, invoke });
    const { result } = renderHook(() => usePreferences(), { wrapper });
    await waitFor(() => expect(result.current.isLoading).toBe(false), POLL_OPTIONS);
    expect(result.current.error?.code).toBe('signing_failed');
  });

  it('resolves a refresh when the one that replaced it has shown the list', async () => {
    const { client, wrapper } = pages.open(createUser());
    const { result } = renderHook(() => useSessions(), { wrapper });
    await waitFor(() => expect(result.current.isLoading).toBe(false), POLL_OPTIONS);
    await client.sessions.create({ title: 'new' });
    await act(async () => {
      const replaced = result.current.refresh();
      void result.current.refresh();
      await replaced;
    });
    expect(result.current.sessions.map(({ title }) => title)).toEqual(['new']);
  });

  it('watches changes only while the page is visible', async () => {
    const { client, wrapper } = pages.open(createUser());
    const { calls } = vi.spyOn(client.sessions, 'changes').mock;
    const countOpen = () => calls.filter(([options]) => !options?.signal?.aborted).length;
    setVisibility('hidden');
    const { result } = renderHook(() => useSessions(), { wrapper });
    const titles = () => result.current.sessions.map(({ title }) => title);
    await waitFor(() => expect(result.current.isLoading).toBe(false), POLL_OPTIONS);
    expect(countOpen()).toBe(0);
    await client.sessions.create({ title: 'while hidden' });
    setVisibility('visible');
    expect(countOpen()).toBe(1);
    await waitFor(() => expect(titles()).toEqual(['while hidden']), POLL_OPTIONS);
    setVisibility('hidden');
    expect(countOpen()).toBe(0);
  });

  it('resolves every concurrent refresh', async () => {
    const { wrapper } = pages.open(createUser());
    const { result } = renderHook(() => useSessions(), { wrapper });
    await act(async () => {
      await Promise.all([result.current.refresh(), result.current.refresh()]);
    });
    expect(result.current).toMatchObject({ isLoading: false, total: 0 });
  });
});

describe('useDelegation', () => {
  it('grants, shows the expiration, and revokes', async () => {
    const { client, wrapper } = pages.open(createUser());
    const { result } = renderHook(() => useDelegation(), { wrapper });
    await waitFor(() => expect(result.current.status).toEqual({ authorized: false }), POLL_OPTIONS);
    const capabilities = [{ can: 'store/*', with: client.did }];
    const { expiration } = await act(() => result.current.grant({ capabilities }));
    expect(result.current.status).toEqual({ authorized: true, expiration });
    await act(() => result.current.revoke());
    expect(result.current.status).toEqual({ authorized: false });
  });
});

describe('usePreferences', () => {
  it('shows preferences set in a conversation', async () => {
    const { client, wrapper } = pages.open(createUser());
    const { sessionId } = await client.sessions.create();
    const { result } = renderHook(() => usePreferences(), { wrapper });
    await waitFor(() => expect(result.current.isLoading).toBe(false), POLL_OPTIONS);
    expect(result.current.preferences).toEqual({});
    const reply = client.messages.send(sessionId, 'in Spanish please');
    const input = { language: 'Spanish' };
    (await pages.model.next()).call({ name: 'set_user_preferences', input });
    (await pages.model.next()).finish();
    await reply;
    await act(() => result.current.refresh());
    expect(result.current.preferences).toMatchObject({ language: 'Spanish' });
  });
});

it('useSessions throws without an OracleProvider', () => {
  expect(() => renderHook(() => useSessions())).toThrow('inside an OracleProvider');
});
