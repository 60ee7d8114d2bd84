import { useCallback, useEffect, useLayoutEffect, useRef, useState } from 'react';

/** Rounding of positions at fractional zoom. */
const END_PX = 4;

/**
 * Follows the end of the thread while the reader is at the very bottom. The smallest move up stops it; otherwise the
 * position stays where it is, also when older messages appear above.
 */
export function useFollow(firstId: string | undefined, sentId: string | undefined) {
  const scroll = useRef<HTMLDivElement>(null);
  const thread = useRef<HTMLDivElement>(null);
  const follows = useRef(true);
  const [isFollowing, setFollowing] = useState(true);
  const setFollows = useCallback((value: boolean) => {
    follows.current = value;
    setFollowing(value);
  }, []);
  const jump = useCallback(() => {
    setFollows(true);
    scrollToEnd(scroll.current);
  }, [setFollows]);

  useEffect(() => {
    const element = scroll.current;
    if (!element) return;
    let last = { top: element.scrollTop, height: element.scrollHeight };
    const onScroll = () => {
      const { scrollTop: top, scrollHeight: height } = element;
      // A thread that gets shorter moves up too.
      if (top < last.top && height >= last.height) setFollows(false);
      else if (isAtEnd(element)) setFollows(true);
      last = { top, height };
    };
    // Earlier than the first scroll event, so that text that arrives in between does not win.
    const onWheel = ({ deltaY }: WheelEvent) => {
      if (deltaY < 0 && element.scrollTop > 0) setFollows(false);
    };
    element.addEventListener('scroll', onScroll, { passive: true });
    element.addEventListener('wheel', onWheel, { passive: true });
    return () => {
      element.removeEventListener('scroll', onScroll);
      element.removeEventListener('wheel', onWheel);
    };
  }, [setFollows]);

  // Text that streams, images that load, and messages that are laid out late change the height.
  useEffect(() => {
    if (!thread.current) return;
    const watch = new ResizeObserver(() => {
      if (follows.current) scrollToEnd(scroll.current);
    });
    watch.observe(thread.current);
    return () => watch.disconnect();
  }, []);

  useKeepPosition(scroll, follows, firstId);
  // A message that was sent is always visible.
  useLayoutEffect(() => {
    if (sentId !== undefined) jump();
  }, [sentId, jump]);
  return { scroll, thread, isFollowing, jump };
}

/** Keeps what the reader sees in place when older messages appear above. */
function useKeepPosition(
  scroll: React.RefObject<HTMLDivElement | null>,
  follows: React.RefObject<boolean>,
  firstId: string | undefined,
): void {
  const before = useRef({ firstId, height: 0 });
  useLayoutEffect(() => {
    const element = scroll.current;
    if (!element) return;
    const { current } = before;
    const isOlderAdded = current.firstId !== undefined && current.firstId !== firstId;
    if (isOlderAdded && !follows.current)
      element.scrollTop += element.scrollHeight - current.height;
    before.current = { firstId, height: element.scrollHeight };
  });
}

const isAtEnd = ({ scrollHeight, scrollTop, clientHeight }: HTMLElement): boolean =>
  scrollHeight - scrollTop - clientHeight <= END_PX;

function scrollToEnd(element: HTMLElement | null): void {
  if (element) element.scrollTop = element.scrollHeight;
}
