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

  useScroll(scroll, position, setFollows);
  useResize(
    scroll,
    thread,
    useCallback(() => {
      if (follows.current) goToEnd();
    }, [goToEnd]),
  );

  // A message that was sent is always visible.
  useLayoutEffect(() => {
    if (sentId !== undefined) jump();
  }, [sentId, jump]);
  return { scroll, thread, follows, isFollowing, jump, leave };
}

/** Reports whether the reader is at the end after a move. */
function useScroll(
  scroll: RefObject<HTMLElement | null>,
  position: RefObject<Position | undefined>,
  setFollows: (follows: boolean) => void,
): void {
  useEffect(() => {
    const element = scroll.current;
    if (!element) return;
    position.current ??= measure(element);
    const onScroll = () => {
      const now = measure(element);
      const last = position.current ?? now;
      position.current = now;
      // The event of `goToEnd`; the reader may have turned the wheel since.
      if (isSame(now, last)) return;
      // A thread that gets shorter moves up too, and so does one in a window that changes its size.
      const isMoved = now.height >= last.height && now.size === last.size;
      if (now.top < last.top && isMoved) setFollows(false);
      else if (isAtEnd(element)) setFollows(true);
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
  }, [scroll, position, setFollows]);
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
  readonly size: string;
}

const measure = (element: HTMLElement): Position => ({
  top: element.scrollTop,
  height: element.scrollHeight,
  size: `${element.clientWidth} ${element.clientHeight}`,
});

const isSame = (a: Position, b: Position): boolean =>
  a.top === b.top && a.height === b.height && a.size === b.size;
