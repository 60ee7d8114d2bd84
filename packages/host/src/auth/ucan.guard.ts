import { type CanActivate, type ExecutionContext, Injectable } from '@nestjs/common';
import { Reflector } from '@nestjs/core';
import type { Response } from 'express';
import { Authenticator } from './authenticator.js';
import type { Caller } from './caller.js';
import { credentialsOf } from './credentials.js';
import type { OracleRequest } from './oracle-request.js';
import { PUBLIC_ROUTE, PublicRoutes } from './public-routes.js';
import { RateLimits } from './rate-limits.js';

/** Lets a request in only with a proven caller; public routes do not even parse credentials. */
@Injectable()
export class UcanGuard implements CanActivate {
  constructor(
    private readonly reflector: Reflector,
    private readonly publicRoutes: PublicRoutes,
    private readonly authenticator: Authenticator,
    private readonly limits: RateLimits,
  ) {}

  async canActivate(context: ExecutionContext): Promise<boolean> {
    if (context.getType() !== 'http' || this.isPublic(context)) return true;
    const request = context.switchToHttp().getRequest<OracleRequest>();
    const response = context.switchToHttp().getResponse<Response>();
    request.caller = await this.callerOf(request, response);
    await this.limits.takeCaller(request.caller, request.ip, response);
    return true;
  }

  /** A failure beyond the address's allowance answers 429, a valid caller of that address passes. */
  private async callerOf(request: OracleRequest, response: Response): Promise<Caller> {
    const allowLookup = !(await this.limits.isExhausted(request.ip));
    try {
      return await this.authenticator.authenticate(credentialsOf(request.headers), { allowLookup });
    } catch (refusal) {
      await this.limits.checkAnonymous(request.ip, response);
      throw refusal;
    }
  }

  private isPublic(context: ExecutionContext): boolean {
    const targets = [context.getHandler(), context.getClass()];
    const { method, route } = context.switchToHttp().getRequest<OracleRequest>();
    return (
      this.reflector.getAllAndOverride<boolean>(PUBLIC_ROUTE, targets) ||
      this.publicRoutes.includes(method, String(route?.path))
    );
  }
}
