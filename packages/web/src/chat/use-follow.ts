import {
  Component,
  type ReactNode,
  type RefObject,
  useCallback,
  useEffect,
  useLayoutEffect,
  useRef,
  useState,
} from 'react';

/** Rounding of positions at fractional zoom. */
const END_PX = 4;
/** A key or a touch moves the thread for a moment. */
const GESTURE_MS = 1_000;

/**
 * Follows the end of the thread while the reader is at the very bottom. The smallest move up stops it; otherwise the
 * position stays where it is. `hasNewer`: what is shown ends before the session does.
 */
export function useFollow(sentId: string | undefined, hasNewer: boolean) {
  const scroll = useRef<HTMLDivElement>(null);
  const thread = useRef<HTMLDivElement>(null);
  const follows = useRef(true);
  const canFollow = useRef(!hasNewer);
  const position = useRef<Position>(undefined);
  const [isFollowing, setFollowing] = useState(true);
  const setFollows = useCallback((value: boolean) => {
    follows.current = value && canFollow.current;
    setFollowing(follows.current);
  }, []);
  useLayoutEffect(() => {
    canFollow.current = !hasNewer;
    if (hasNewer) setFollows(false);
  }, [hasNewer, setFollows]);
  const goToEnd = useCallback(() => {
    const element = scroll.current;
    if (!element) return;
    element.scrollTop = element.scrollHeight;
    position.current = measure(element);
  }, []);
  const jump = useCallback(() => {
    setFollows(true);
    goToEnd();
  }, [setFollows, goToEnd]);
  const leave = useCallback(() => setFollows(false), [setFollows]);

  const follow = useCallback(() => {
    if (follows.current) goToEnd();
  }, [goToEnd]);
  useScroll(scroll, position, { setFollows, follow });
  useResize(scroll, thread, follow);

  // A message that was sent is always visible.
  useLayoutEffect(() => {
    if (sentId !== undefined) jump();
  }, [sentId, jump]);
  return { scroll, thread, follows, isFollowing, jump, leave };
}

interface Moves {
  /** Whether the reader is at the end after a move. */
  readonly setFollows: (follows: boolean) => void;
  /** The browser has moved the thread, not the reader. */
  readonly follow: () => void;
}

/** Reports the moves of the thread. */
function useScroll(
  scroll: RefObject<HTMLElement | null>,
  position: RefObject<Position | undefined>,
  { setFollows, follow }: Moves,
): void {
  useEffect(() => {
    const element = scroll.current;
    if (!element) return;
    const gesture = watchGestures(element);
    const report = (mover: Mover | undefined) => {
      if (mover === 'reader') {
        gesture.note();
        setFollows(false);
      } else if (mover === 'browser') follow();
      else if (isAtEnd(element)) setFollows(true);
    };
    position.current ??= measure(element);
    const onScroll = () => {
      const now = measure(element);
      const last = position.current ?? now;
      position.current = now;
      // The event of `goToEnd`; the reader may have turned the wheel since.
      if (isSame(now, last)) return;
      report(findMover(now, last, gesture.isRecent()));
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
      gesture.stop();
    };
  }, [scroll, position, setFollows, follow]);
}

type Mover = 'reader' | 'browser';

/** Who has moved the thread up. `isGesture`: the reader may be moving it. */
function findMover(now: Position, last: Position, isGesture: boolean): Mover | undefined {
  // A thread that gets shorter moves up too, and so does one in a window that changes its size.
  const isResized = now.width !== last.width || now.view !== last.view;
  if (now.top >= last.top || now.height < last.height || isResized) return undefined;
  // It may have been shorter for a moment, before it grew: WebKit reports only the result.
  const isShortened = now.height > last.height && last.top - now.top < now.view;
  return isShortened && !isGesture ? 'browser' : 'reader';
}

const UPWARD_KEYS = ['ArrowUp', 'PageUp', 'Home'];

/** Whether the reader may be moving the thread: with a key, the scroll bar or a finger. */
function watchGestures(element: HTMLElement) {
  let at = Number.NEGATIVE_INFINITY;
  const note = () => {
    at = performance.now();
  };
  const stop = new AbortController();
  const options = { signal: stop.signal, passive: true };
  for (const type of ['pointerdown', 'touchmove']) element.addEventListener(type, note, options);
  const onKey = ({ key, shiftKey }: KeyboardEvent) => {
    if (UPWARD_KEYS.includes(key) || (key === ' ' && shiftKey)) note();
  };
  window.addEventListener('keydown', onKey, options);
  return { note, isRecent: () => performance.now() - at < GESTURE_MS, stop: () => stop.abort() };
}

/** Text that streams, images that load, messages that are laid out late, and the window change the height. */
function useResize(
  scroll: RefObject<HTMLElement | null>,
  thread: RefObject<HTMLElement | null>,
  onResize: () => void,
): void {
  useEffect(() => {
    const watch = new ResizeObserver(onResize);
    for (const { current } of [scroll, thread]) if (current) watch.observe(current);
    return () => watch.disconnect();
  }, [scroll, thread, onResize]);
}

interface KeepPositionProps {
  readonly scroll: RefObject<HTMLElement | null>;
  readonly thread: RefObject<HTMLElement | null>;
  readonly follows: RefObject<boolean>;
  /** Changes with the first and the last message. */
  readonly edges: string;
  readonly children: ReactNode;
}

/** Where an element is in the window. */
interface Anchor {
  readonly element: Element;
  readonly top: number;
}

/**
 * Keeps what the reader sees in place when messages appear or disappear above. A class, because only it is called before
 * the document changes. Browsers do the same by themselves, but not at the very top, and some not at all.
 */
export class KeepPosition extends Component<KeepPositionProps> {
  override getSnapshotBeforeUpdate(before: KeepPositionProps): readonly Anchor[] {
    const { edges, scroll, thread, follows } = this.props;
    if (edges === before.edges || follows.current || !scroll.current) return [];
    const { top, bottom } = scroll.current.getBoundingClientRect();
    return [...(thread.current?.querySelectorAll('.msg') ?? [])]
      .map((element) => ({ element, ...pickPlace(element) }))
      .filter((place) => place.bottom > top && place.top < bottom);
  }

  override componentDidUpdate(_: KeepPositionProps, __: object, anchors: readonly Anchor[]): void {
    const { scroll } = this.props;
    const anchor = anchors.find(({ element }) => element.isConnected);
    if (anchor && scroll.current)
      scroll.current.scrollTop += anchor.element.getBoundingClientRect().top - anchor.top;
  }

  override render(): ReactNode {
    return this.props.children;
  }
}

function pickPlace(element: Element): { readonly top: number; readonly bottom: number } {
  const { top, bottom } = element.getBoundingClientRect();
  return { top, bottom };
}

const isAtEnd = ({ scrollHeight, scrollTop, clientHeight }: HTMLElement): boolean =>
  scrollHeight - scrollTop - clientHeight <= END_PX;

interface Position {
  readonly top: number;
  readonly height: number;
  readonly width: number;
  /** The visible height. */
  readonly view: number;
}

const measure = (element: HTMLElement): Position => ({
  top: element.scrollTop,
  height: element.scrollHeight,
  width: element.clientWidth,
  view: element.clientHeight,
});

const isSame = (a: Position, b: Position): boolean =>
  a.top === b.top && a.height === b.height && a.width === b.width && a.view === b.view;
