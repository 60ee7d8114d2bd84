import { JSDOM } from 'jsdom';

// Import before React. Not Vitest's jsdom environment: Node's fetch rejects its AbortSignal.
const { window } = new JSDOM('<!doctype html><body></body>', { pretendToBeVisual: true });
const { document, HTMLElement, HTMLIFrameElement, Node } = window;
Object.assign(globalThis, { window, document, HTMLElement, HTMLIFrameElement, Node });
