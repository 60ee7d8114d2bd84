/** An element that contains the focus, and its place among its siblings. */
interface Step {
  readonly element: Element;
  readonly index: number;
}

const FOCUSABLE = 'a[href], button, input, select, textarea, summary, [tabindex="0"]';

let isKept = false;

/**
 * Moves focus to what is next to the focused element when that one disappears. Otherwise who uses the keyboard or a screen
 * reader would start at the top of the page again.
 */
export function keepFocus(): void {
  if (isKept) return;
  isKept = true;
  const { activeElement, body } = document;
  /** From the focused element to the root; empty if the user has left it. */
  let trail = activeElement && activeElement !== body ? listSteps(activeElement) : [];
  const isLost = () => trail.length > 0 && document.activeElement === document.body;
  document.addEventListener('focusin', ({ target }) => {
    trail = listSteps(target as Element);
  });
  document.addEventListener('focusout', ({ target, relatedTarget }) => {
    const left = target as Element;
    if (relatedTarget !== null) return;
    // Later, since an element that is removed loses focus too.
    setTimeout(() => {
      if (isLost() && trail[0]?.element === left && canFocus(left)) trail = [];
    });
  });
  // Touch screens do not need it, and focus would show a keyboard.
  document.addEventListener('pointerup', ({ pointerType }) => {
    if (pointerType === 'touch') trail = [];
  });
  new MutationObserver(() => {
    if (isLost()) focusNear(trail);
  }).observe(document.body, { childList: true, subtree: true, attributeFilter: ['disabled'] });
}

function listSteps(focused: Element): readonly Step[] {
  const steps: Step[] = [];
  for (let element: Element | null = focused; element; element = element.parentElement)
    steps.push({ element, index: [...(element.parentElement?.children ?? [])].indexOf(element) });
  return steps;
}

const canFocus = (element: Element) => element.isConnected && !element.matches(':disabled');

/** A button that is disabled while it works gets the focus back afterwards. */
function focusNear(trail: readonly Step[]): boolean {
  const [focused] = trail;
  if (focused?.element.isConnected) return tryFocus(focused.element);
  return trail.slice(1).some(({ element }, i) => {
    if (!element.isConnected) return false;
    const siblings = [...element.children];
    const index = trail[i]?.index ?? 0;
    const nearest = [...siblings.slice(index), ...siblings.slice(0, index).reverse()];
    return nearest.some(focusWithin);
  });
}

const focusWithin = (element: Element): boolean =>
  tryFocus(element) || [...element.querySelectorAll(FOCUSABLE)].some(tryFocus);

function tryFocus(element: Element): boolean {
  if (!(element instanceof HTMLElement) || !element.matches(FOCUSABLE)) return false;
  element.focus({ preventScroll: true });
  return document.activeElement === element;
}
