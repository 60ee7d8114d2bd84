import {
  type KeyboardEvent,
  type ReactNode,
  useEffect,
  useLayoutEffect,
  useRef,
  useState,
} from 'react';
import { Icon, type IconName } from './icon.js';

interface MenuItem {
  readonly label: string;
  readonly icon?: IconName;
  readonly hint?: string;
  /** Keys that do the same. */
  readonly keys?: string;
  readonly isDanger?: boolean;
  /** Of one of several choices. */
  readonly isChecked?: boolean;
  readonly href?: string;
  readonly run?: () => void;
}

interface MenuProps {
  readonly label: string;
  /** Groups of items, with a line between them. */
  readonly groups: readonly (readonly MenuItem[])[];
  /** What the button shows. */
  readonly children: ReactNode;
  readonly className?: string;
  /** Whether the button has a text, so that it needs no label. */
  readonly hasText?: boolean;
  /** Shown below the items. */
  readonly footer?: ReactNode;
}

/** A button with a menu. Arrow keys move, Escape closes, focus returns to the button. */
export function Menu(props: MenuProps) {
  const { label, groups, children, className = 'icon-btn', hasText, footer } = props;
  const [isOpen, setOpen] = useState(false);
  const button = useRef<HTMLButtonElement>(null);
  const close = () => {
    setOpen(false);
    button.current?.focus();
  };
  return (
    <>
      <button
        ref={button}
        type="button"
        className={className}
        aria-haspopup="menu"
        aria-expanded={isOpen}
        aria-label={hasText ? undefined : label}
        title={label}
        onClick={() => setOpen(!isOpen)}
      >
        {children}
      </button>
      {isOpen && (
        <Pop label={label} button={button} onClose={close} onLeave={() => setOpen(false)}>
          {groups.map((items, index) => (
            <MenuGroup key={index} items={items} isFirst={index === 0} onChosen={close} />
          ))}
          {footer}
        </Pop>
      )}
    </>
  );
}

interface PopProps {
  readonly label: string;
  readonly button: React.RefObject<HTMLButtonElement | null>;
  readonly onClose: () => void;
  readonly onLeave: () => void;
  readonly children: ReactNode;
}

/** In the top layer, so that no scrolling list clips it. */
function Pop({ label, button, onClose, onLeave, children }: PopProps) {
  const pop = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    if (!pop.current || !button.current) return;
    pop.current.showPopover();
    place(pop.current, button.current);
    findItems(pop.current)[0]?.focus();
  }, [button]);
  useEffect(() => {
    const leave = ({ target }: Event) => {
      const isInside = [pop, button].some(({ current }) => current?.contains(target as Node));
      if (!isInside) onLeave();
    };
    document.addEventListener('pointerdown', leave);
    window.addEventListener('resize', onLeave);
    return () => {
      document.removeEventListener('pointerdown', leave);
      window.removeEventListener('resize', onLeave);
    };
  }, [button, onLeave]);
  const onKeyDown = (event: KeyboardEvent) => {
    const step = moves[event.key];
    if (event.key === 'Escape' || event.key === 'Tab') onClose();
    if (step) step(findItems(event.currentTarget));
    if (step || event.key === 'Escape') event.preventDefault();
    event.stopPropagation();
  };
  return (
    <div
      ref={pop}
      popover="manual"
      className="pop"
      role="menu"
      aria-label={label}
      tabIndex={-1}
      onKeyDown={onKeyDown}
    >
      {children}
    </div>
  );
}

const findItems = (menu: Element): HTMLElement[] => [
  ...menu.querySelectorAll<HTMLElement>('.pop-item:is(button, a), .pop-item input:checked'),
];

const move = (items: HTMLElement[], by: number) => {
  const index = items.indexOf(document.activeElement as HTMLElement);
  items[(index + by + items.length) % items.length]?.focus();
};

const moves: Readonly<Record<string, (items: HTMLElement[]) => void>> = {
  ArrowDown: (items) => move(items, 1),
  ArrowUp: (items) => move(items, -1),
  Home: (items) => items[0]?.focus(),
  End: (items) => items.at(-1)?.focus(),
};

const GAP_PX = 4;

/** Below the button, or above it where there is more room; inside the window. */
function place(pop: HTMLElement, button: HTMLElement): void {
  const { top, bottom, left, right } = button.getBoundingClientRect();
  const { offsetWidth: width, offsetHeight: height } = pop;
  const isUp = bottom + height + GAP_PX > innerHeight && top > innerHeight - bottom;
  const isStart = (left + right) / 2 < innerWidth / 2;
  const x = isStart ? left : right - width;
  pop.style.top = `${Math.max(GAP_PX, isUp ? top - height - GAP_PX : bottom + GAP_PX)}px`;
  pop.style.left = `${Math.min(Math.max(GAP_PX, x), innerWidth - width - GAP_PX)}px`;
}

interface MenuGroupProps {
  readonly items: readonly MenuItem[];
  readonly isFirst: boolean;
  readonly onChosen: () => void;
}

function MenuGroup({ items, isFirst, onChosen }: MenuGroupProps) {
  return (
    <>
      {!isFirst && items.length > 0 && <hr />}
      {items.map((item) => (
        <MenuRow key={item.label} item={item} onChosen={onChosen} />
      ))}
    </>
  );
}

function MenuRow({ item, onChosen }: { readonly item: MenuItem; readonly onChosen: () => void }) {
  const { label, icon, hint, keys, isDanger, isChecked, href, run } = item;
  const choose = () => {
    onChosen();
    run?.();
  };
  const content = (
    <>
      {icon && <Icon name={icon} />}
      <span className="grow">
        {label}
        {hint && <span className="hint pop-hint">{hint}</span>}
      </span>
      {keys && <kbd>{keys}</kbd>}
      {isChecked && <Icon name="check" />}
    </>
  );
  const className = isDanger ? 'pop-item is-fault' : 'pop-item';
  if (href !== undefined) {
    return (
      <a className={className} role="menuitem" href={href} onClick={onChosen}>
        {content}
      </a>
    );
  }
  const role =
    isChecked === undefined
      ? { role: 'menuitem' }
      : { role: 'menuitemradio', 'aria-checked': isChecked };
  return (
    <button type="button" className={className} {...role} onClick={choose}>
      {content}
    </button>
  );
}
