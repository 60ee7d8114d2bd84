import type { NextFunction, Request, Response } from 'express';

const API_POLICY = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'";

/** Swagger UI styles itself inline and shows its icons as data URLs; script stays external. */
const DOCS_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self' 'unsafe-inline'",
  "img-src 'self' data:",
  "font-src 'self'",
  "connect-src 'self'",
  "frame-ancestors 'none'",
  "base-uri 'none'",
  "form-action 'none'",
].join('; ');

/** Sets what keeps a browser from misusing an answer; a route may override it. */
export function securityHeaders(request: Request, response: Response, next: NextFunction): void {
  const policy = isDocs(request) ? DOCS_POLICY : API_POLICY;
  response.setHeader('Content-Security-Policy', policy);
  response.setHeader('X-Content-Type-Options', 'nosniff');
  response.setHeader('X-Frame-Options', 'DENY');
  response.setHeader('Referrer-Policy', 'no-referrer');
  if (!isDocs(request)) response.setHeader('Cache-Control', 'no-store');
  next();
}

/** Whether a request is for the pages that describe the interface; the router minds no case either. */
export function isDocs({ path }: Pick<Request, 'path'>): boolean {
  return /^\/docs(\/|-json\/?$|$)/i.test(path);
}

/** Whether a request is a health check, which is neither limited nor worth a line in the log. */
export function isHealth({ path }: Pick<Request, 'path'>): boolean {
  return path === '/health' || path === '/health/ready';
}
